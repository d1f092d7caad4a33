// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// body is one paragraph of bodies.txt.
type body struct {
	doc    []string
	name   string
	embeds string // the body whose fields it has, too
	enum   bool   // texts with known values: the fields are names in Go and the texts, in the order of Java's ordinals
	fields []bodyField
}

// bodyField is one line of a body.
type bodyField struct {
	name, goName, kind string
	optional           bool
	alias, def, note   string
	date               string // the name of a time's second form
}

// parseBodies reads bodies.txt.
func parseBodies(text string) ([]body, error) {
	var bodies []body
	var doc []string
	for i, line := range strings.Split(text, "\n") {
		code, note, _ := strings.Cut(line, "//")
		words := strings.Fields(code)
		switch {
		case strings.HasPrefix(line, "//"):
			doc = append(doc, line)
		case len(words) == 0 || words[0] == "#":
		case line[0] != ' ' && words[0] == "enum" && len(words) == 2:
			bodies = append(bodies, body{doc: doc, name: words[1], enum: true})
			doc = nil
		case line[0] != ' ':
			bodies = append(bodies, body{doc: doc, name: words[0], embeds: strings.Join(words[1:], " ")})
			doc = nil
		case len(bodies) > 0 && bodies[len(bodies)-1].enum && len(words) == 2:
			b := &bodies[len(bodies)-1]
			b.fields = append(b.fields, bodyField{goName: words[0], name: words[1]})
		default:
			f, err := parseBodyField(words)
			if err == nil && len(bodies) == 0 {
				err = fmt.Errorf("a field before the first body")
			}
			if err != nil {
				return nil, fmt.Errorf("bodies.txt:%d: %w", i+1, err)
			}
			f.note = strings.TrimSpace(note)
			b := &bodies[len(bodies)-1]
			b.fields = append(b.fields, f)
		}
	}
	for _, b := range bodies {
		if len(b.fields) == 0 || len(b.doc) == 0 {
			return nil, fmt.Errorf("bodies.txt: %s has no fields or no comment", b.name)
		}
		if b.embeds != "" && find(bodies, b.embeds) == nil {
			return nil, fmt.Errorf("bodies.txt: %s has the fields of %s, which is no body", b.name, b.embeds)
		}
	}
	return bodies, nil
}

func find(bodies []body, name string) *body {
	for i := range bodies {
		if bodies[i].name == name {
			return &bodies[i]
		}
	}
	return nil
}

func parseBodyField(words []string) (bodyField, error) {
	if len(words) < 3 || (words[2] != "+" && words[2] != "?") {
		return bodyField{}, fmt.Errorf("want name, type and mark, + or ?")
	}
	f := bodyField{name: words[0], kind: words[1], optional: words[2] == "?", goName: goName(words[0])}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "alias":
			f.alias = value
		case "date":
			f.date = value
		case "go":
			f.goName = value
		case "default":
			f.def = value
		default:
			return f, fmt.Errorf("unknown word %q", word)
		}
	}
	return f, nil
}

// emitBodies returns bodies_gen.go.
func emitBodies(bodies []body) string {
	var b strings.Builder
	fmt.Fprintf(&b, preamble, "bodies.txt", "protocol")
	for i := range bodies {
		if bodies[i].enum {
			emitEnum(&b, &bodies[i])
		} else {
			emitBody(&b, bodies, &bodies[i])
		}
	}
	return b.String()
}

func emitEnum(b *strings.Builder, enum *body) {
	fmt.Fprintf(b, "\n%s\ntype %s string\n\n", strings.Join(enum.doc, "\n"), enum.name)
	fmt.Fprintf(b, "// The values of %s, in the order of Java's ordinals.\nconst (\n", enum.name)
	var names []string
	for _, f := range enum.fields {
		fmt.Fprintf(b, "\t%s %s = %q\n", f.goName, enum.name, f.name)
		names = append(names, fmt.Sprintf("%q", f.name))
	}
	fmt.Fprintf(b, ")\n\nvar names%s = [...]string{%s}\n", enum.name, strings.Join(names, ", "))
}

func emitBody(b *strings.Builder, bodies []body, body *body) {
	fmt.Fprintf(b, "\n%s\ntype %s struct {\n", strings.Join(body.doc, "\n"), body.name)
	if body.embeds != "" {
		fmt.Fprintf(b, "\t%s\n", body.embeds)
	}
	var defaults []string
	for _, f := range body.fields {
		note := ""
		if f.note != "" {
			note = " // " + f.note
		}
		fmt.Fprintf(b, "\t%s %s%s\n", f.goName, f.kind, note)
		if f.def != "" {
			defaults = append(defaults, f.goName+": "+f.def)
		}
	}
	b.WriteString("}\n")
	if len(defaults) > 0 {
		fmt.Fprintf(
			b,
			"\nfunc (b *%s) setDefaults() { *b = %s{%s} }\n",
			body.name,
			body.name,
			strings.Join(defaults, ", "),
		)
	}
	fields := slices.Clone(body.fields)
	if body.embeds != "" {
		fields = append(fields, find(bodies, body.embeds).fields...)
	}
	slices.SortFunc(fields, func(x, y bodyField) int { return strings.Compare(x.name, y.name) })
	fmt.Fprintf(b, "\nfunc (b *%s) fields(c *bodyCodec) {\n", body.name)
	for _, f := range fields {
		if f.alias != "" {
			fmt.Fprintf(b, "\tc.rename(%q, %q)\n", f.alias, f.name)
		}
	}
	for _, f := range fields {
		fmt.Fprintf(b, "\t%s\n", call(bodies, &f))
	}
	b.WriteString("}\n")
}

// call is the statement that writes or reads the field.
func call(bodies []body, f *bodyField) string {
	name, field := fmt.Sprintf("%q", f.name), "&b."+f.goName
	switch kind := f.kind; {
	case kind == "string" && f.optional:
		return fmt.Sprintf("c.optText(%s, %s)", name, field)
	case f.date != "":
		return fmt.Sprintf("c.timeField(%s, %q, %s)", name, f.date, field)
	case kind == "BitSet":
		return fmt.Sprintf("c.bytes(%s, (*[]byte)(%s))", name, field)
	case find(bodies, kind) != nil && find(bodies, kind).enum:
		return fmt.Sprintf("c.enum(%s, (*string)(%s), names%s[:])", name, field, kind)
	case kind[0] == '*':
		return fmt.Sprintf("optObject(c, %s, %s)", name, field)
	default:
		return when(f, fmt.Sprintf("value(c, %s, %s, %s)", name, field, element(kind)))
	}
}

// when is the statement of a list or table that is null when nil.
func when(f *bodyField, statement string) string {
	if !f.optional {
		return statement
	}
	return fmt.Sprintf("if c.when(b.%s != nil) {\n\t\t%s\n\t}", f.goName, statement)
}

// element is the function that writes or reads a value of the kind alone.
func element(kind string) string {
	switch {
	case kind == "string":
		return "textValue"
	case kind == "int32", kind == "int64":
		return kind + "Value"
	case kind == "bool", kind == "float64", kind == "LanguageCode":
		return map[string]string{"bool": "bool", "float64": "decimal", "LanguageCode": "language"}[kind] + "Value"
	case strings.HasPrefix(kind, "[]"):
		return "listValue(" + element(kind[2:]) + ")"
	case strings.HasPrefix(kind, "map["):
		key, value, _ := strings.Cut(kind[4:], "]")
		return "tableValue(" + keyKind(key) + ", " + element(value) + ")"
	default:
		return "objectValue[" + kind + "]"
	}
}

func keyKind(kind string) string {
	switch kind {
	case "string":
		return "textKey{}"
	case "MessageQueue":
		return "queueKey{}"
	default:
		return "intKey[" + kind + "]{}"
	}
}
