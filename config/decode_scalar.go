package config

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// scalar decodes text, numbers and truth values.
func (d *decoder) scalar(n *node, at *loc, v reflect.Value) bool {
	if n.kind != scalar {
		return d.wrong(n, at, article(typeName(v.Type())), "")
	}
	switch v.Kind() {
	case reflect.Int:
		return d.whole(n, at, v)
	case reflect.Uint64:
		return d.seed(n, at, v)
	case reflect.Float64:
		x, ok := d.float(n, at)
		if ok {
			v.SetFloat(x)
		}
		return ok
	case reflect.Bool:
		return d.truth(n, at, v)
	}
	return d.text(n, at, v)
}

// isNumber reports whether n is an unquoted number.
func (n *node) isNumber() bool {
	return n.kind == scalar && !n.quote && (n.tag == "!!int" || n.tag == "!!float")
}

// isWhole reports whether s is a decimal whole number without leading zeros, the only notation in which nobody can be wrong.
func isWhole(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || digits != "0" && digits[0] == '0' {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

func (d *decoder) whole(n *node, at *loc, v reflect.Value) bool {
	if !n.isNumber() || !isWhole(n.text) {
		return d.wrong(n, at, "a whole number", numberTip(n))
	}
	x, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		return d.wrong(n, at, "a whole number of less than 2^63", "")
	}
	v.SetInt(x)
	return true
}

func (d *decoder) seed(n *node, at *loc, v reflect.Value) bool {
	if !n.isNumber() || !isWhole(n.text) || n.text[0] == '-' {
		return d.wrong(n, at, "a whole number of at least 0", numberTip(n))
	}
	x, err := strconv.ParseUint(strings.TrimPrefix(n.text, "+"), 10, 64)
	if err != nil {
		return d.wrong(n, at, "a whole number of less than 2^64", "")
	}
	v.SetUint(x)
	return true
}

// float reads a finite number.
func (d *decoder) float(n *node, at *loc) (float64, bool) {
	if !n.isNumber() || strings.Trim(n.text, "0123456789+-.eE") != "" {
		return 0, d.wrong(n, at, "a finite number", numberTip(n))
	}
	x, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, d.wrong(n, at, "a finite number", "")
	}
	return x, true
}

// numberTip says how to write a number that was written another way; empty if that is not clear.
func numberTip(n *node) string {
	x, err := strconv.ParseFloat(n.text, 64)
	switch {
	case n.isNumber() && n.tag == "!!int" && strings.ContainsAny(n.text, "xob"):
		return "write it in decimal digits"
	case n.kind != scalar || err != nil || math.IsInf(x, 0) || math.IsNaN(x):
		return ""
	case n.quote:
		return "remove the quotes"
	case isWhole(n.text) || x != math.Trunc(x) || math.Abs(x) >= 1e15:
		return ""
	case strings.Trim(n.text, "0123456789+-") == "":
		return "write it without leading zeros"
	}
	return "write " + number(x)
}

func (d *decoder) truth(n *node, at *loc, v reflect.Value) bool {
	if n.quote || n.tag != "!!bool" {
		tip := ""
		switch strings.ToLower(n.text) {
		case "yes", "on", "y", "1", "true":
			tip = "write true"
		case "no", "off", "n", "0", "false":
			tip = "write false"
		}
		return d.wrong(n, at, "true or false", tip)
	}
	v.SetBool(strings.EqualFold(n.text, "true"))
	return true
}

func (d *decoder) text(n *node, at *loc, v reflect.Value) bool {
	if !n.quote && n.tag != "!!str" && n.tag != "!!timestamp" {
		return d.wrong(n, at, "text", "put it in quotes")
	}
	if !utf8.ValidString(n.text) || strings.ContainsFunc(n.text, badInText) {
		return d.fail(n, at, "found %s with characters that cannot be printed, expected text", quoteWord(n.text))
	}
	v.SetString(n.text)
	return true
}

func badInText(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
