package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// unknown reports a key that the struct at a location does not have, and what the user most likely meant.
func (d *decoder) unknown(p pair, at *loc, t reflect.Type) {
	prefix, star := "", ""
	if at != nil {
		prefix, star = at.String()+".", at.star()+"."
	}
	message, meant := unknownMessage(star, p.key, keyNames(t))
	if strings.HasSuffix(star, "*.") {
		meant = prefix + meant
	}
	// The key that was meant would be reported as missing, and an expectation as empty: say one thing once.
	d.bad[prefix+p.key], d.bad[meant] = true, true
	d.problems = append(d.problems, p.at.problem(prefix+show(p.key), message))
}

// unknownMessage explains an unknown key and names the key of ours that was meant, if the message does. star is the dotted
// place of the key with a dot at its end, empty at the top.
func unknownMessage(star, key string, have []string) (message, meant string) {
	if r := refusedKey(star + key); r != nil {
		return r.keyMessage(), ""
	}
	section := strings.TrimSuffix(star, ".")
	if above, below, dotted := strings.Cut(key, "."); dotted && section == "" && isSection(above) {
		return fmt.Sprintf("dotted keys are for overrides; in a file write a section, as in %s: {%s: …}", above, show(below)), key
	}
	switch use := elsewhere(section, key); {
	case section == "" && isMegatronSection(key):
		return fmt.Sprintf("Megatron has the section %s; Phalanx does not support it yet", show(key)), ""
	case megatronKeys[star+key] && use != "":
		return fmt.Sprintf("Megatron has %s; Phalanx takes %s instead", star+key, use), use
	case megatronKeys[star+key]:
		return fmt.Sprintf("Megatron has %s; Phalanx does not support it yet", star+key), ""
	case use != "":
		return "unknown key here; use " + use, use
	}
	if section != "" && isSection(section) || section == "" {
		if home := megatronSectionOf(key); home != "" {
			return fmt.Sprintf("unknown key here; Megatron has %s.%s, which Phalanx does not support yet", home, key), ""
		}
	}
	rest, meant := suggestion(star, key, have)
	return "unknown key" + rest, meant
}

// elsewhere is our key that says what a key unknown in this section means; empty if there is none.
func elsewhere(section, key string) string {
	if use := otherSpellings[section+"."+key]; use != "" {
		return use
	}
	if section != "" && !isSection(section) {
		return ""
	}
	if with := sectionsWith(key); len(with) == 1 {
		return with[0] + "." + key
	}
	return ""
}

// suggestion is the nearest key to a mistyped one, after "unknown key", or the legal keys when none is near.
func suggestion(star, key string, have []string) (rest, meant string) {
	best, near := nearest(key, have)
	later, nearLater := nearest(key, refusedNames(star))
	theirs, nearTheirs := nearest(key, megatronNames(star))
	switch {
	case best != "" && (later == "" || near <= nearLater) && (theirs == "" || near <= nearTheirs):
		return "; did you mean " + ownName(star, best) + "?", ownName(star, best)
	case later != "" && (theirs == "" || nearLater <= nearTheirs):
		return fmt.Sprintf("; the nearest, %s, is not in this version", ownName(star, later)), ""
	case theirs != "":
		return fmt.Sprintf("; the nearest, %s, is Megatron's, and Phalanx does not support it yet", ownName(star, theirs)), ""
	}
	return "; expected one of " + cut(strings.Join(have, ", "), 8*maxShown), ""
}

// ownName is a suggested key as it would be written: dotted in a section, plain in an entry of a list.
func ownName(star, key string) string {
	if strings.Contains(star, "*") {
		return key
	}
	return star + key
}

// refusedNames are the keys of a place that come with a later version.
func refusedNames(star string) []string {
	var names []string
	for _, r := range refusals {
		if name, ok := strings.CutPrefix(r.key, star); ok && refusedKey(r.key) != nil && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// megatronNames are Megatron's keys of a section that we do not have.
func megatronNames(star string) []string {
	var names []string
	for key := range megatronKeys {
		if name, ok := strings.CutPrefix(key, star); ok && star != "" && specs[key] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
