package config

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// nearest reads the key and the value that a problem calls the nearest legal one.
var nearestOf = regexp.MustCompile(`(model\.\w+): .*nearest legal: (\d+)`)

// legalAfter takes the nearest legal value of every problem until there is none; each round may bring another rule's.
func legalAfter(t *rapid.T, text string, overrides []string, keys ...string) Scenario {
	for range 4 {
		f, problems := Parse("f.yaml", []byte(text), overrides)
		if problems == nil {
			return f.Runs()[0]
		}
		for _, p := range problems {
			m := nearestOf.FindStringSubmatch(p.String())
			require.NotNil(t, m, "%s", p)
			require.Contains(t, keys, m[1])
			overrides = append(overrides, m[1]+"="+m[2])
		}
	}
	t.Fatalf("no end of problems: %v", overrides)
	return Scenario{}
}

// TestExpertLayoutsProperty: a layout of experts that is taken lays them over the ranks without a rest, and the nearest
// legal value of one that is not is legal.
func TestExpertLayoutsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string, high int) int { return rapid.IntRange(1, high).Draw(t, name) }
		tp, cp, dp := 1<<rapid.IntRange(0, 1).Draw(t, "tp"), size("cp", 3), size("dp", 6)
		overrides := []string{"model.sequence_parallel=true"}
		for _, o := range []struct {
			key  string
			size int
		}{
			{"model.tensor_model_parallel_size", tp}, {"model.context_parallel_size", cp}, {"dist.world_size", tp * cp * dp},
			{"model.num_moe_experts", 1 + size("experts", 11)}, {"model.moe_ffn_hidden_size", size("width", 12)},
			{expertModelKey, size("ep", 14)}, {expertTensorKey, size("etp", 14)},
		} {
			overrides = append(overrides, fmt.Sprintf("%s=%d", o.key, o.size))
		}
		s := legalAfter(t, goodFile, overrides, expertModelKey, expertTensorKey)
		require.Zero(t, tp*cp*dp%s.Sizes().Experts())
		require.Zero(t, s.Model.NumMoEExperts%s.Model.ExpertParallel)
		require.Zero(t, s.Model.MoEFFNHiddenSize%s.Model.ExpertTensorParallel)
	})
}

// TestWorldOfExpertsProperty: with the world size that a problem names, the experts fit.
func TestWorldOfExpertsProperty(t *testing.T) {
	world := regexp.MustCompile(`a dist.world_size that is a multiple of (\d+)$`)
	rapid.Check(t, func(t *rapid.T) {
		overrides := []string{"model.num_moe_experts=12", fmt.Sprintf("model.context_parallel_size=%d", rapid.IntRange(1, 6).Draw(t, "cp")),
			fmt.Sprintf("%s=%d", expertModelKey, rapid.SampledFrom([]int{1, 2, 3, 4, 6, 12}).Draw(t, "ep")),
			fmt.Sprintf("%s=%d", expertTensorKey, rapid.SampledFrom([]int{1, 2, 3, 4}).Draw(t, "etp"))}
		for range 2 { // once for each of the two sizes
			_, problems := Parse("f.yaml", []byte(goodFile), overrides)
			if problems == nil {
				return
			}
			m := world.FindStringSubmatch(problems[len(problems)-1].Message)
			require.NotNil(t, m, "%v", problems)
			overrides = append(overrides, "dist.world_size="+m[1])
		}
		require.Empty(t, problemsOf(goodFile, overrides...))
	})
}

// TestGroupsProperty: a group-limited choice that is taken can be made, and the nearest legal value of one that is not is
// legal, unless the problem says that there is none.
func TestGroupsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string, high int) int { return rapid.IntRange(1, high).Draw(t, name) }
		experts := size("experts", 15) + 1
		overrides := []string{fmt.Sprintf("model.num_moe_experts=%d", experts), fmt.Sprintf("model.moe_router_topk=%d", min(1+size("topk", 8), experts)),
			fmt.Sprintf("model.moe_router_num_groups=%d", size("groups", 18)), fmt.Sprintf("model.moe_router_group_topk=%d", size("group top-k", 18))}
		for range 2 { // the number of groups, then of those to keep
			problems := problemsOf(goodFile, overrides...)
			if len(problems) == 1 && strings.Contains(problems[0], "no value is legal") {
				return
			}
			if len(problems) > 0 {
				m := nearestOf.FindStringSubmatch(problems[0])
				overrides = append(overrides, m[1]+"="+m[2])
			}
		}
		if problems := problemsOf(goodFile, overrides...); len(problems) > 0 {
			require.Contains(t, problems[0], "no value is legal")
			return
		}
		f, _ := Parse("f.yaml", []byte(goodFile), overrides)
		m := f.Runs()[0].Model
		require.Zero(t, m.NumMoEExperts%m.MoERouterNumGroups)
		require.Zero(t, m.MoERouterTopK%m.MoERouterGroupTopK)
		require.LessOrEqual(t, m.MoERouterGroupTopK, m.MoERouterNumGroups)
		require.LessOrEqual(t, m.MoERouterTopK/m.MoERouterGroupTopK, m.NumMoEExperts/m.MoERouterNumGroups)
	})
}
