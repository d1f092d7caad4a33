// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// code is one line of codes.txt.
type code struct {
	number   int
	name     string // Apache's
	goName   string
	priority string
	kind     string // request, response, language
	own      bool   // roquet's, not Apache's
	also     string // of requests the right that they need, of responses the gRPC code; may be empty
}

// header is one paragraph of headers.txt.
type header struct {
	name   string
	doc    []string // of a header without codes, which exists inside the process only
	codes  []string
	fields []field
}

// hasV2 reports whether the header also exists with one-letter names.
func (h *header) hasV2() bool { return h.fields[0].v2 != "" }

// inside reports whether the header exists inside the process only.
func (h *header) inside() bool { return len(h.codes) == 0 }

// isRequest reports whether requests carry the header.
func (h *header) isRequest() bool { return !strings.HasSuffix(h.name, "ResponseHeader") }

// field is one line of a header.
type field struct {
	name, goName string
	kind         string // string, int32, int64, bool
	mark         string // *, +, ?
	v2, def      string
	note         string // of a header inside the process
}

// optional reports whether the Go field is an Optional.
func (f *field) optional() bool { return f.mark == "?" && f.kind != "string" }

// parseCodes reads codes.txt.
func parseCodes(text string) ([]code, error) {
	var codes []code
	section := ""
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case len(words) == 1:
			section = words[0]
			continue
		}
		kind, own := strings.CutPrefix(section, "own-")
		need := map[string]int{"request": 4, "response": 3, "language": 3}[kind]
		if need == 0 || len(words) < need || len(words) > need+1 {
			return nil, fmt.Errorf("codes.txt:%d: %d words", i+1, len(words))
		}
		number, err := strconv.Atoi(words[0])
		if err != nil {
			return nil, fmt.Errorf("codes.txt:%d: %w", i+1, err)
		}
		c := code{number: number, name: words[1], goName: words[2], kind: kind, own: own}
		if kind == "request" {
			c.priority = words[3]
		}
		if len(words) > need {
			c.also = words[need]
		}
		codes = append(codes, c)
	}
	return codes, nil
}

// parseHeaders reads headers.txt and checks what it says against itself and the codes.
func parseHeaders(text string, codes []code) ([]header, error) {
	known := map[string]bool{}
	for _, c := range codes {
		known[c.name] = known[c.name] || c.kind == "request"
	}
	var headers []header
	var doc []string
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		var err error
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "//"):
			doc = append(doc, line)
		case line[0] != ' ':
			headers = append(headers, header{doc: doc, name: words[0], codes: words[1:]})
			doc = nil
			for _, name := range words[1:] {
				if !known[name] {
					err = fmt.Errorf("no request code %s", name)
				}
			}
		default:
			var f field
			h := &headers[len(headers)-1]
			if len(h.codes) > 0 {
				f, err = parseField(words)
			} else {
				name, note, _ := strings.Cut(line, "//")
				words = strings.Fields(name)
				f = field{name: words[0], goName: words[0], kind: words[len(words)-1], note: strings.TrimSpace(note)}
			}
			h.fields = append(h.fields, f)
		}
		if err != nil {
			return nil, fmt.Errorf("headers.txt:%d: %w", i+1, err)
		}
	}
	for _, h := range headers {
		if len(h.fields) == 0 || len(h.codes)+len(h.doc) == 0 {
			return nil, fmt.Errorf("headers.txt: %s has no fields, or neither codes nor a comment", h.name)
		}
	}
	return headers, nil
}

func parseField(words []string) (field, error) {
	if len(words) < 3 {
		return field{}, fmt.Errorf("want name, type and mark")
	}
	f := field{name: words[0], kind: words[1], mark: words[2], goName: goName(words[0])}
	if !strings.Contains(" string int32 int64 bool ", " "+f.kind+" ") || !strings.Contains("*+?", f.mark) {
		return f, fmt.Errorf("unknown type %q or mark %q", f.kind, f.mark)
	}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "v2":
			f.v2 = value
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

// goName returns the Go spelling of a Java field name.
func goName(name string) string {
	name = strings.ToUpper(name[:1]) + name[1:]
	for _, r := range [][2]string{
		{"IdsTo", "IDsTo"}, {"Id", "ID"}, {"Qid", "QID"}, {"Crc32", "CRC32"}, {"Json", "JSON"}, {"Ha", "HA"},
	} {
		before, after, found := strings.Cut(name, r[0])
		if found && (after == "" || isUpper(after[0])) {
			name = before + r[1] + after
		}
	}
	return name
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
