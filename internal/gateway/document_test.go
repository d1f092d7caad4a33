// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// words splits a line as a shell does, as far as docs/rest.md needs it.
func words(line string, vars map[string]string) (all []string) {
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && c == ' ':
			if in {
				all = append(all, word.String())
				word.Reset()
			}
			in = false
			continue
		case quote == 0 && strings.HasPrefix(line[i:], "$'"): // $'…\n…'
			end := i + 2 + strings.IndexByte(line[i+2:], '\'')
			word.WriteString(strings.ReplaceAll(line[i+2:end], `\n`, "\n"))
			i = end
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		case quote == '"' && c == '\\':
			i++
			word.WriteByte(line[i])
		case quote != '\'' && c == '$':
			name := regexp.MustCompile(`^\w+`).FindString(line[i+1:])
			word.WriteString(vars[name])
			i += len(name)
		default:
			word.WriteByte(c)
		}
		in = true
	}
	if in {
		all = append(all, word.String())
	}
	return all
}

// curl makes the request that curl makes with these arguments.
func (r *rest) curl(args []string) *answer {
	r.t.Helper()
	method, url, data, typ := "", "", "", "application/x-www-form-urlencoded"
	header := http.Header{"Accept": {"*/*"}}
	limit := time.Minute
	for i := 1; i < len(args); i++ {
		arg := args[i]
		value := func() string {
			i++
			return args[i]
		}
		switch arg {
		case "-s", "-i", "-N":
		case "-X":
			method = value()
		case "-d", "--data-binary":
			if data = value(); strings.HasPrefix(data, "@") {
				b, err := os.ReadFile("../../" + data[1:])
				if err != nil {
					r.t.Fatal(err)
				}
				data = string(b)
			}
		case "-H":
			name, value, _ := strings.Cut(value(), ": ")
			header.Set(name, value)
		case "--max-time":
			seconds, _ := strconv.Atoi(value())
			limit = time.Duration(seconds) * time.Second
		default:
			if strings.HasPrefix(arg, "-") || url != "" {
				r.t.Fatalf("curl %v: what is %s?", args, arg)
			}
			url = strings.Replace(arg, "localhost:8080", "http://"+r.addr, 1)
		}
	}
	if method == "" {
		method = http.MethodGet
		if data != "" {
			method = http.MethodPost
		}
	}
	if data != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", typ)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatalf("curl %v: %v", args, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatalf("curl %v: %v", args, err)
	}
	return &answer{t: r.t, status: resp.StatusCode, header: resp.Header, body: b}
}

// TestRESTDocument runs the lines of docs/rest.md.
func TestRESTDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, nil)
	vars := map[string]string{}
	assign := regexp.MustCompile(`^(\w+)=\$\((curl .*) \| jq -r '\.(.*)'\)$`)
	index := regexp.MustCompile(`\[(\d+)\]`)
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			command, status, ok := strings.Cut(strings.TrimSpace(line), " # ")
			want, err := strconv.Atoi(status)
			if !ok || err != nil {
				t.Fatalf("no status: %s", line)
			}
			name, path := "", ""
			if m := assign.FindStringSubmatch(command); m != nil {
				name, command, path = m[1], m[2], index.ReplaceAllString(m[3], ".$1")
			}
			a := r.curl(words(command, vars))
			if a.status != want {
				t.Fatalf("%s\nstatus %d, want %d: %s", line, a.status, want, a.body)
			}
			if strings.Contains(string(a.body), `"error":{"code"`) {
				t.Errorf("%s\n%s", line, a.body)
			}
			if name != "" {
				vars[name] = a.text(path)
			}
			ran++
		}
	}
	if ran < 40 {
		t.Errorf("%d lines ran", ran)
	}
}

// TestOpenAPI checks that /openapi.json stands on its own and that its examples are what the server takes.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	page := r.get("/openapi.json").want(http.StatusOK)
	var doc struct {
		Swagger string
		Paths   map[string]map[string]struct {
			Summary, OperationID string
			Responses            map[string]any
			Parameters           []struct{ Name, In string }
		}
		Definitions map[string]struct {
			Description string
			Example     json.RawMessage
		}
	}
	if err := json.Unmarshal(page.body, &doc); err != nil || doc.Swagger != "2.0" {
		t.Fatal(doc.Swagger, err)
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			if ids[o.OperationID] || o.Summary == "" || o.Responses["default"] == nil || o.Responses["200"] == nil {
				t.Errorf("%s %s: %+v", method, path, o)
			}
			ids[o.OperationID] = true
			for _, p := range o.Parameters {
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s %s: parameter %s", method, path, p.Name)
				}
			}
		}
	}
	if len(ids) < 36 {
		t.Errorf("%d operations", len(ids))
	}
	for _, ref := range regexp.MustCompile(`"#/definitions/(\w+)"`).FindAllStringSubmatch(string(page.body), -1) {
		if _, ok := doc.Definitions[ref[1]]; !ok {
			t.Errorf("no definition %s", ref[1])
		}
	}
	examples := 0
	for name, d := range doc.Definitions {
		if len(d.Example) == 0 {
			continue
		}
		examples++
		full := protoreflect.FullName("roquet.v1." + strings.TrimPrefix(name, "v1"))
		typ, err := protoregistry.GlobalTypes.FindMessageByName(full)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := protojson.Unmarshal(d.Example, typ.New().Interface()); err != nil {
			t.Errorf("example of %s: %v", name, err)
		}
	}
	if examples < 8 {
		t.Errorf("%d examples", examples)
	}
	valid(t, page.body)
	r.get("/healthz").want(http.StatusOK)
	r.get("/livez").want(http.StatusOK)
	r.get("/readyz").want(http.StatusOK)
}

// valid checks the page as tools that read it do, examples included.
func valid(t *testing.T, page []byte) {
	t.Helper()
	var v2 openapi2.T
	if err := json.Unmarshal(page, &v2); err != nil {
		t.Fatal(err)
	}
	v3, err := openapi2conv.ToV3(&v2)
	if err != nil {
		t.Fatal(err)
	}
	if err := v3.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}
