// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/roquetmq/roquet/api"
)

// rule is how an rpc is called over HTTP. One of the methods has the path.
type rule struct {
	Selector string `yaml:"selector"`
	Get      string `yaml:"get"`
	Put      string `yaml:"put"`
	Post     string `yaml:"post"`
	Delete   string `yaml:"delete"`
	Patch    string `yaml:"patch"`
	Body     string `yaml:"body"` // a field, "*" for all fields, "" for none
}

// readRules reads the rules of api/rest.yaml, by selector.
func readRules() (map[string]*rule, error) {
	var file struct {
		HTTP struct {
			Rules []*rule `yaml:"rules"`
		} `yaml:"http"`
	}
	if err := yaml.Unmarshal(api.RESTRules, &file); err != nil {
		return nil, fmt.Errorf("read api/rest.yaml: %w", err)
	}
	rules := make(map[string]*rule, len(file.HTTP.Rules))
	for _, r := range file.HTTP.Rules {
		rules[r.Selector] = r
	}
	return rules, nil
}

func (r *rule) route() (method, path string) {
	for method, path := range map[string]string{
		http.MethodGet: r.Get, http.MethodPut: r.Put, http.MethodPost: r.Post,
		http.MethodDelete: r.Delete, http.MethodPatch: r.Patch,
	} {
		if path != "" {
			return method, path
		}
	}
	return "", ""
}

var placeholder = regexp.MustCompile(`{\w+}`)

// request lays a message down as path with query, and body.
func (r *rule) request(in proto.Message) (method, target string, body []byte, err error) {
	in = proto.Clone(in)
	m, fields := in.ProtoReflect(), in.ProtoReflect().Descriptor().Fields()
	method, path := r.route()
	path = placeholder.ReplaceAllStringFunc(path, func(name string) string {
		field := fields.ByName(protoreflect.Name(strings.Trim(name, "{}")))
		text := m.Get(field).String()
		if text == "" {
			err = fmt.Errorf("the %s is empty", field.Name())
		}
		m.Clear(field)
		return url.PathEscape(text)
	})
	if err != nil {
		return "", "", nil, err
	}
	switch r.Body {
	case "":
	case "*":
		body, err = protojson.Marshal(in)
		return method, path, body, err
	default:
		field := fields.ByName(protoreflect.Name(r.Body))
		if body, err = protojson.Marshal(m.Get(field).Message().Interface()); err != nil {
			return "", "", nil, err
		}
		m.Clear(field)
	}
	query, err := queryOf(in)
	if query != "" {
		path += "?" + query
	}
	return method, path, body, err
}

// queryOf is what a message holds, as parameters of a query.
func queryOf(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	values, decoder := map[string]any{}, json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return "", err
	}
	query := url.Values{}
	for name, value := range values {
		query.Set(name, fmt.Sprint(value))
	}
	return query.Encode(), nil
}
