// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// emitRights returns rights_gen.go of internal/service.
func emitRights(codes []code) (string, error) {
	var b, bodies strings.Builder
	fmt.Fprintf(&b, preamble, "internal/protocol/codes.txt", "service")
	b.WriteString(`
import (
	"github.com/roquetmq/roquet/internal/auth"
	p "github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// rightsOf is the table of what each request code needs. A code without a place here needs Cluster Update.
func rightsOf() map[p.Code]right {
	return map[p.Code]right{
`)
	for _, c := range codes {
		if c.kind != "request" || c.also == "" {
			continue
		}
		word, body, _ := strings.Cut(c.also, "=")
		if body != "" {
			fmt.Fprintf(&bodies, "\tcase p.%s:\n\t\treturn p.DecodeBody[p.%s](c.Body)\n", c.goName, body)
		}
		text, err := right(word)
		if err != nil {
			return "", fmt.Errorf("codes.txt: %s: %w", c.name, err)
		}
		fmt.Fprintf(&b, "\t\tp.%s: {%s},\n", c.goName, text)
	}
	b.WriteString("\t}\n}\n\n// namesInBody decodes the body of a code that names topics and groups there; nil for others.\n")
	fmt.Fprintf(&b, "func namesInBody(c *remoting.Call) (any, error) {\n\tswitch c.Code {\n%s\t}\n\treturn nil, nil\n}\n", &bodies)
	return b.String(), nil
}

// right is the fields of a right: both:sub|get? becomes topic: auth.Sub | auth.Get, group: …, optional: true.
func right(word string) (string, error) {
	if word == "-" {
		return "", nil
	}
	word, optional := strings.CutSuffix(word, "?")
	kind, words, _ := strings.Cut(word, ":")
	var actions []string
	for action := range strings.SplitSeq(words, "|") {
		if !strings.Contains(" pub sub get list create update delete ", " "+action+" ") {
			return "", fmt.Errorf("unknown action %q", action)
		}
		actions = append(actions, "auth."+strings.ToUpper(action[:1])+action[1:])
	}
	fields := map[string]string{"topic": "topic: %s", "both": "topic: %[1]s, group: %[1]s", "cluster": "cluster: %s"}[kind]
	if fields == "" {
		return "", fmt.Errorf("a right of %q", kind)
	}
	if optional {
		fields += ", optional: true"
	}
	return fmt.Sprintf(fields, strings.Join(actions, "|")), nil
}

// emitStatus returns codes_gen.go of internal/grpcapi.
func emitStatus(codes []code) string {
	var b strings.Builder
	fmt.Fprintf(&b, preamble, "internal/protocol/codes.txt", "grpcapi")
	b.WriteString(`
import (
	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// responseCodes is what each response code that is in use is to a gRPC client.
var responseCodes = map[protocol.ResponseCode]v2.Code{
`)
	for _, c := range codes {
		if c.kind == "response" && c.also != "" {
			fmt.Fprintf(&b, "\tprotocol.%s: v2.Code_%s,\n", c.goName, c.also)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// emitProperties returns properties_gen.go of internal/message from properties.txt.
func emitProperties(text string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, preamble, "properties.txt", "message")
	b.WriteString("\n// Names of well-known properties. Source: MessageConst of Apache RocketMQ 5.5.\nconst (\n")
	marked := map[rune][]string{}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case len(words) == 1 || len(words) > 3:
			return "", fmt.Errorf("properties.txt:%d: want a name in Go, the name, and marks", i+1)
		}
		fmt.Fprintf(&b, "\tProperty%s = %q\n", words[0], words[1])
		for _, mark := range strings.Join(words[2:], "") {
			marked[mark] = append(marked[mark], "Property"+words[0])
		}
	}
	list := func(mark rune) string { return strings.Join(marked[mark], ",\n\t\t") }
	fmt.Fprintf(&b, `)

// IsReserved tells whether a property's name means something to brokers and clients, so that no user may set it.
// Source: MessageConst.java STRING_HASH_SET.
func IsReserved(name string) bool {
	switch name {
	case %s:
		return true
	}
	return false
}

// IsInternal tells whether a stored property is the system's own: besides the reserved ones those that the
// original hands out to consumers as if a user had set them.
func IsInternal(name string) bool {
	switch name {
	case %s:
		return true
	}
	return IsReserved(name)
}

// DLQProperties are those that tell of a message's way to the dead letters. It loses them when it is published again;
// its id it keeps.
func DLQProperties() []string {
	return []string{
		%s,
	}
}
`, list('r'), list('i'), list('w'))
	return b.String(), nil
}
