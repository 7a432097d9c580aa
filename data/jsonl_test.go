package data_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// lines is a jsonl scenario of one file, unshuffled.
func lines(t *testing.T, b, s int, docs ...string) *config.Scenario {
	t.Helper()
	sc := scenario("jsonl", b, 1, s, 256)
	sc.Dataset.Paths = []string{write(t, "d.jsonl", strings.Join(docs, "\n")+"\n")}
	sc.Dataset.Shuffle = false
	return sc
}

func TestAnswerMaskAtTheSeam(t *testing.T) { // docs/examples.md, G8: 3 prompt and 2 answer tokens
	s := lines(t, 1, 4, `{"prompt":"abc","completion":"de"}`)
	s.Dataset.AnswerOnlyLoss = true
	m := open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, []float32{0, 0, 1, 1}, m.Loss.Weight, "both answer tokens are targets")
	require.Equal(t, []int32{'a', 'b', 'c', 'd'}, m.IDs)
	require.Equal(t, []int32{'b', 'c', 'd', 'e'}, m.Labels)
	s.Dataset.AnswerOnlyLoss = false
	require.Equal(t, []float32{1, 1, 1, 1}, open(t, s).Train.Microbatch(0, 0).Loss.Weight)
}

func TestMessages(t *testing.T) {
	s := lines(t, 1, 40, `{"id":7,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"},{"role":"user","content":"?"}]}`)
	s.Dataset.AnswerOnlyLoss = true
	d := open(t, s)
	m := d.Train.Microbatch(0, 0)
	want := "user: hi\nassistant: yo\nuser: ?\n"
	require.Equal(t, want[:len(want)-1], d.Tokenizer.Decode(m.IDs[:len(want)-1]))
	var targets []int32
	for i, y := range m.Labels {
		if m.Loss.At(0, i) == 1 {
			targets = append(targets, y)
		}
	}
	require.Equal(t, "yo\n", d.Tokenizer.Decode(targets), "what the assistant says, and its end")
}

func TestJSONLPadding(t *testing.T) {
	s := lines(t, 2, 8, `{"text":"abc"}`, `{"text":"defghi"}`, ``, `{"text":"jk"}`, `{"text":"lmn"}`)
	s.Dataset.PadToken = 'k'
	m := open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, 8, m.S)
	require.Equal(t, []int32{'a', 'b', 'k', 'k', 'k', 'k', 'k', 'k', 'd', 'e', 'f', 'g', 'h', 'k', 'k', 'k'}, m.IDs)
	require.Equal(t, []int32{'b', 'c', 'k', 'k', 'k', 'k', 'k', 'k', 'e', 'f', 'g', 'h', 'i', 'k', 'k', 'k'}, m.Labels)
	for i := range 8 {
		require.Equal(t, i >= 2, m.Pad.Pad[i])
		require.Equal(t, i < 2, m.Loss.At(0, i) == 1)
		require.Equal(t, i >= 5, m.Pad.Pad[8+i])
	}
	s.Dataset.PadTo = "longest"
	d := open(t, s)
	require.Equal(t, 5, d.Train.Microbatch(0, 0).S)
	second := d.Train.Microbatch(1, 0)
	require.Equal(t, 2, second.S)
	require.Equal(t, []int32{'k', 'k', 'm', 'n'}, []int32{second.Labels[0], second.IDs[1], second.IDs[3], second.Labels[3]})
	require.Equal(t, []float32{1, 0, 1, 1}, second.Loss.Weight, "a true k counts, a pad k does not")
	s.Model.TensorParallel = 4
	require.Equal(t, 5, open(t, s).Train.Microbatch(0, 0).S)
	s.Model.SequenceParallel = true
	require.Equal(t, 8, open(t, s).Train.Microbatch(0, 0).S, "sequence parallelism has to cut it")
}

func TestJSONLCutsAndSplits(t *testing.T) {
	s := lines(t, 1, 4, `{"prompt":"0123","completion":"45678"}`, `{"prompt":"0123456","completion":"7"}`, `{"prompt":"ab","completion":"c"}`,
		`{"messages":[{"role":"user","content":""}]}`, `{"prompt":"x","completion":"yz"}`)
	s.Dataset.AnswerOnlyLoss, s.Dataset.ValidationShare = true, 0.2
	d := open(t, s)
	require.Equal(t, "jsonl: 1 file, 5 documents, 30 tokens, 4 for training, 1 for validation, 3 cut to 5 tokens, "+
		"2 without an answer (1 by cutting)", d.Summary)
	m := d.Train.Microbatch(0, 0)
	require.Equal(t, []int32{'0', '1', '2', '3'}, m.IDs)
	require.Equal(t, []int32{'1', '2', '3', '4'}, m.Labels)
	require.Equal(t, []float32{0, 0, 0, 1}, m.Loss.Weight)
	require.EqualValues(t, 0, d.Train.Microbatch(1, 0).Loss.Count(), "nothing to learn, and no crash (G3)")
	require.Equal(t, []int32{'x', 'y', 0, 0}, d.Validation.Microbatch(0, 0).IDs)
	for step := range 8 {
		require.NotEqual(t, int32('x'), d.Train.Microbatch(step, 0).IDs[0], "training never sees validation documents")
	}
}

func TestJSONLShuffle(t *testing.T) {
	var docs []string
	for c := 'a'; c <= 'j'; c++ {
		docs = append(docs, `{"text":"`+string(c)+`!"}`)
	}
	s := lines(t, 1, 2, docs...)
	s.Dataset.Shuffle = true
	d := open(t, s)
	var epochs [2]string
	for i := range 20 {
		epochs[i/10] += string(d.Train.Microbatch(i, 0).IDs[0])
	}
	require.ElementsMatch(t, []byte("abcdefghij"), []byte(epochs[0]))
	require.ElementsMatch(t, []byte("abcdefghij"), []byte(epochs[1]))
	require.NotEqual(t, epochs[0], epochs[1])
}

func TestJSONLProblems(t *testing.T) {
	s := lines(t, 1, 8,
		`{"text":"fine"}`, `{"text":7}`, `{"text":"a`, `[1]`, `{"text":"a"}`, `{"id":1}`, `{"text":"ab","prompt":"c"}`, `{"prompt":"ab"}`,
		`{"messages":{}}`, `{"messages":["a"]}`, `{"messages":[{"role":"user"}]}`, `{"messages":[{"role":"bot","content":"a"}]}`,
		"{\"text\":\"a\xff\"}", `{"text":"ab"} x`, `{"messages":[]}`)
	got := refused(t, s)
	want := []string{
		":2: text: found a JSON number, expected a string",
		":3: no JSON object: unexpected end of JSON input",
		":4: the line: found a JSON array, expected an object",
		":5: found 1 token, expected at least 2, one to read and one to predict",
		":6: found 0 forms, expected one of text, prompt + completion, messages",
		":7: found 2 forms, expected one of text, prompt + completion, messages",
		":8: found one of prompt and completion, expected both",
		":9: messages: found a JSON object, expected a list",
		":10: messages: found a JSON string, expected an object",
		":11: messages[0]: expected role and content",
		`:12: messages[0]: found role "bot", expected one of system, user, assistant, tool`,
		":13: found no UTF-8 at byte 10 of the line, expected a JSON object in UTF-8",
		":14: no JSON object: invalid character 'x' after top-level value",
		":15: found 0 tokens, expected at least 2",
	}
	problems := strings.Split(got, "\n")
	require.Len(t, problems, len(want))
	for i, w := range want {
		require.Contains(t, problems[i], "d.jsonl"+w)
	}

	s = lines(t, 1, 8, `{"text":"abc"}`)
	s.Dataset.AnswerOnlyLoss = true
	require.Contains(t, refused(t, s), "d.jsonl:1: found text, which has no answer; expected prompt + completion or messages for answer_only_loss")
	s.Dataset.LossMask = "absent"
	require.Contains(t, refused(t, s), "dataset.answer_only_loss: found true with loss_mask: absent, expected loss_mask: present")
	s = lines(t, 1, 8, ``, `  `)
	require.Contains(t, refused(t, s), "d.jsonl: found no line, expected one JSON object a line")
	s = lines(t, 1, 8, `{"text":"abc"}`)
	s.Dataset.ValidationShare = 0.5
	require.Contains(t, refused(t, s), "found 1 document with validation_share 0.5, expected at least one for training and one for validation")
	s.Dataset.Paths = []string{"nowhere.jsonl"}
	require.Contains(t, refused(t, s), "nowhere.jsonl: no such file")
	s.Tokenizer.Kind = "bpe"
	require.Contains(t, refused(t, s), "expected byte")
}
