// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/roquetmq/roquet/api"
)

// rule is how an rpc is called over HTTP: its selector, the path under the method's name, and as body a field, or "*"
// for all fields.
type rule map[string]any

// readRules reads the rules of api/rest.yaml, by selector.
func readRules() (map[any]rule, error) {
	var file struct{ HTTP struct{ Rules []rule } }
	if err := yaml.Unmarshal(api.RESTRules, &file); err != nil {
		return nil, fmt.Errorf("read api/rest.yaml: %w", err)
	}
	rules := make(map[any]rule, len(file.HTTP.Rules))
	for _, r := range file.HTTP.Rules {
		rules[r["selector"]] = r
	}
	return rules, nil
}

func (r rule) route() (method, path string) {
	for _, method := range []string{"get", "put", "post", "delete", "patch"} {
		if path, ok := r[method].(string); ok {
			return strings.ToUpper(method), path
		}
	}
	return "", ""
}

var placeholder = regexp.MustCompile(`{\w+}`)

// request lays a message down as path with query, and body.
func (r rule) request(in proto.Message) (method, target string, body []byte, err error) {
	values := map[string]json.RawMessage{}
	text, err := protojson.Marshal(in)
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	m := in.ProtoReflect()
	method, path := r.route()
	path = placeholder.ReplaceAllStringFunc(path, func(name string) string {
		field := m.Descriptor().Fields().ByTextName(strings.Trim(name, "{}"))
		delete(values, field.JSONName())
		if !m.Has(field) && field.Kind().String() == "string" {
			err = fmt.Errorf("the %s is empty", field.Name())
		}
		return url.PathEscape(m.Get(field).String())
	})
	if err != nil || r["body"] == "*" {
		text, fault := json.Marshal(values)
		return method, path, text, errors.Join(err, fault)
	}
	if name, ok := r["body"].(string); ok {
		if body = values[name]; body == nil {
			body = []byte("{}")
		}
		delete(values, name)
	}
	query := url.Values{}
	for name, value := range values {
		text := string(value)
		_ = json.Unmarshal(value, &text) // what is no string stays as it is
		query.Set(name, text)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return method, path, body, err
}
