// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/config"
)

// described is what /openapi.json says of a path: its methods, each with its query parameters.
type described struct {
	route   string
	path    *regexp.Regexp
	methods map[string][]string
}

// describe reads /openapi.json.
func describe() (all []described) {
	var page struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string } `json:"parameters"`
		} `json:"paths"`
	}
	_ = json.Unmarshal(openAPI, &page) // generated
	parameter := regexp.MustCompile(`\\{[^}]*\\}`)
	for path, methods := range page.Paths {
		pattern := parameter.ReplaceAllLiteralString(regexp.QuoteMeta(path), "[^/]+")
		one := described{path, regexp.MustCompile("^" + pattern + "$"), map[string][]string{}}
		for method, operation := range methods {
			names := []string{}
			for _, p := range operation.Parameters {
				if p.In == "query" {
					names = append(names, p.Name)
				}
			}
			one.methods[strings.ToUpper(method)] = names
		}
		all = append(all, one)
	}
	return all
}

// describedAt finds the path of a request; nil if there is none.
func (d *door) describedAt(r *http.Request) (found *described) {
	for i := range d.described {
		one := &d.described[i]
		if one.path.MatchString(r.URL.EscapedPath()) && (found == nil || one.methods[r.Method] != nil) {
			found = one
		}
	}
	return found
}

// checkQuery refuses query parameters that the route does not have: a filter that is misspelt would select all.
func (d *door) checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	route := d.describedAt(r)
	if route == nil || route.methods[r.Method] == nil {
		return nil
	}
	known := route.methods[r.Method]
	for name := range r.URL.Query() {
		switch {
		case slices.Contains(known, name):
		case len(known) == 0:
			return badRequest("unknown query parameter %q: the route has none", name)
		default:
			return badRequest("unknown query parameter %q; the nearest known one is %q", name,
				config.Nearest(name, slices.Values(known)))
		}
	}
	return nil
}
