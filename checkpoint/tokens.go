package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Strict reading of the header's JSON, token by token: encoding/json alone keeps the last of two equal names silently.

// object reads { key: value, … }; value reads one value.
func (p *parser) object(tensor, what string, value func(key string) error) error {
	if err := p.delim(tensor, what, '{', "an object"); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.str(tensor, "a key of "+what)
		if err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim(tensor, what, '}', "a closing }")
}

// ints reads an array of at most limit numbers in [0, 2^62].
func (p *parser) ints(tensor, what string, limit int) ([]int64, error) {
	if err := p.delim(tensor, what, '[', "a list of numbers"); err != nil {
		return nil, err
	}
	out := []int64{}
	for p.dec.More() {
		if len(out) == limit {
			return nil, p.fail(ErrFormat, tensor, fmt.Sprintf("more than %d numbers in %s", limit, what),
				fmt.Sprintf("at most %d", limit))
		}
		tok, err := p.token(tensor)
		if err != nil {
			return nil, err
		}
		num, _ := tok.(json.Number)
		n, err := strconv.ParseInt(num.String(), 10, 64)
		if err != nil || n < 0 || n > 1<<62 {
			return nil, p.fail(ErrFormat, tensor, fmt.Sprintf("%v in %s", tok, what), "whole numbers from 0 to 2^62")
		}
		out = append(out, n)
	}
	return out, p.delim(tensor, what, ']', "a closing ]")
}

func (p *parser) str(tensor, what string) (string, error) {
	tok, err := p.token(tensor)
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", p.fail(ErrFormat, tensor, fmt.Sprintf("%v as %s", tok, what), "a string")
	}
	return s, nil
}

func (p *parser) delim(tensor, what string, want json.Delim, name string) error {
	tok, err := p.token(tensor)
	if err != nil {
		return err
	}
	if d, ok := tok.(json.Delim); !ok || d != want {
		return p.fail(ErrFormat, tensor, fmt.Sprintf("%v as %s", tok, what), name)
	}
	return nil
}

func (p *parser) token(tensor string) (json.Token, error) {
	tok, err := p.dec.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, p.fail(ErrFormat, tensor, "the end of the header inside it", "a whole JSON object")
	}
	if err != nil {
		return nil, p.fail(ErrFormat, tensor, err.Error(), "a JSON object")
	}
	return tok, nil
}

func (p *parser) fail(kind error, tensor, found, expected string) error {
	return &FormatError{Path: p.path, Tensor: tensor, Found: found, Expected: expected, Kind: kind}
}
