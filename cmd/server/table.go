// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// show writes an answer, a message of the API or a value that JSON knows: as JSON, or as a table of one of its lists,
// named with the members that make the columns, and what else it says below; without a list a line for each member. Of
// a list the table is the columns.
func (c *call) show(v any, table string) error {
	text, err := json.Marshal(v)
	if m, ok := v.(proto.Message); ok {
		text, err = protojson.MarshalOptions{EmitDefaultValues: true, UseProtoNames: !c.json()}.Marshal(m)
	}
	if err != nil {
		return err
	}
	if c.json() {
		encoder := json.NewEncoder(c.out())
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(json.RawMessage(text))
	}
	out := tabwriter.NewWriter(c.out(), 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		for i, text := range cells {
			cells[i] = printable(text, 0)
		}
		_, _ = fmt.Fprintln(out, strings.Join(cells, "\t")) // Flush has the error
	}
	words, rest := strings.Fields(table), []string(nil)
	for name, value := range members(text) {
		list, isList := value.([]any)
		all, isMap := value.(map[string]any)
		label, said := strings.ReplaceAll(name, "_", " "), cell(value)
		if len(list) > 0 {
			if _, object := list[0].(map[string]any); object {
				said = strconv.Itoa(len(list)) // they are too much for a line
			}
		}
		switch {
		case isList && name == "":
			rows(line, list, words)
		case isList && len(words) > 1 && name == words[0]:
			rows(line, list, words[1:])
		case isMap:
			for _, key := range slices.Sorted(maps.Keys(all)) {
				line(key, fmt.Sprint(all[key]))
			}
		case said == "-" || strings.HasSuffix(name, "_token"):
		case len(words) == 0:
			line(label, said)
		default:
			rest = append(rest, label+" "+said)
		}
	}
	if err = out.Flush(); err == nil && len(rest) > 0 {
		err = c.say("%s", strings.Join(rest, ", "))
	}
	return err
}

// members are those of a JSON object, in order; what is none is one without a name.
func members(text []byte) func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		object := text[0] == '{'
		if object {
			_, _ = decoder.Token() // what this program has written can be read
		}
		for decoder.More() {
			name, value := json.Token(""), any(nil)
			if object {
				name, _ = decoder.Token()
			}
			if err := decoder.Decode(&value); err != nil || !yield(fmt.Sprint(name), value) {
				return
			}
		}
	}
}

var hump = regexp.MustCompile("_|([a-z0-9])([A-Z])")

// rows writes a head and a row for each member of a list.
func rows(line func(cells ...string), list []any, columns []string) {
	head := make([]string, len(columns))
	for i, name := range columns {
		head[i] = strings.ToUpper(hump.ReplaceAllString(name, "$1-$2"))
	}
	line(head...)
	for _, item := range list {
		row, _ := item.(map[string]any) // it is one
		cells := make([]string, len(columns))
		for i, name := range columns {
			cells[i] = cell(row[name])
			if text, ok := row["text"].(string); ok && name == "payload" {
				cells[i] = printable(text, shownBody)
			} else if name == "payload" {
				cells[i] = printable("base64:"+cell(row["body"]), shownBody)
			}
		}
		line(cells...)
	}
}

// cell is a value for people; "-" when it says nothing.
func cell(v any) string {
	var words []string
	switch v := v.(type) {
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			v = at.Local().Format("2006-01-02 15:04:05.000")
		}
		if !strings.HasSuffix(v, "_UNSPECIFIED") {
			words = append(words, v)
		}
	case []any:
		for _, one := range v {
			words = append(words, cell(one))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if text := cell(v[key]); text != "-" {
				words = append(words, key+"="+text)
			}
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.Contains(v.String(), ".") {
			return strconv.FormatFloat(f, 'f', 2, 64)
		}
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	if text := strings.Join(words, " "); text != "" {
		return text
	}
	return "-"
}

// printable is text on one line that does nothing to a terminal, cut to so many characters if it has more.
func printable(text string, limit int) string {
	out := []rune(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, strings.TrimSpace(text)))
	if limit > 0 && len(out) > limit {
		out = append(out[:limit-1], '…')
	}
	return string(out)
}
