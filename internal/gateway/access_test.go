// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/config"
)

const guardedFile = `
users:
  - {username: root, password: root-secret, userType: Super}
  - {username: bare, password: bare-secret}
`

// guarded makes a service ask for credentials.
func guarded(t *testing.T) func(*config.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(guardedFile), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(cfg *config.Config) { cfg.Auth.File = path }
}

func basic(user, secret string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+secret))
}

// TestC137EveryRouteNeedsCredentialsAndRights: every route of the OpenAPI page × no credentials, a wrong secret, no
// rights, a super user. What needs no rights stays open.
func TestC137EveryRouteNeedsCredentialsAndRights(t *testing.T) {
	r := start(t, guarded(t))
	root := basic("root", "root-secret")
	r.do(http.MethodPut, "/v1/topics/t", "{}", root).want(http.StatusOK)
	r.do(http.MethodPut, "/v1/groups/g", "{}", root).want(http.StatusOK)
	sent := r.do(http.MethodPost, "/v1/topics/t/messages", "x", root).want(http.StatusCreated)
	got := r.do(http.MethodPost, "/v1/groups/g/topics/t/messages:receive", `{"wait":"10s"}`, root).want(http.StatusOK)
	handle := got.text("messages.0.receiptHandle")
	tx := r.do(
		http.MethodPost,
		"/v1/topics/t/messages:prepare",
		`{"text":"half"}`,
		root,
		"Content-Type: application/json",
	).
		want(
			http.StatusCreated,
		).text(
		"transactionId",
	)
	later := r.do(http.MethodPost, "/v1/topics/t/messages", `{"text":"later","delay":"3600s"}`, root,
		"Content-Type: application/json").want(http.StatusCreated).text("recallHandle")
	settle, _ := json.Marshal(map[string][]string{"receiptHandles": {handle}})
	bodies := map[string]string{
		"messages:ack": string(
			settle,
		),
		"messages:nack":       string(settle),
		"messages:extend":     string(settle[:len(settle)-1]) + `,"invisible":"30s"}`,
		"messages:deadLetter": string(settle),
		"messages:recall":     `{"recallHandle":"` + later + `"}`,
		"messages:batch":      `{"messages":[{"text":"a"}]}`,
		"/offsets":            `{"to":"EARLIEST"}`,
		"/v1/config":          `{"values":{"logLevel":"info"}}`,
		"/v1/definitions":     `{"topics":[{"name":"t"}]}`,
		"messages:redrive":    `{}`,
		"messages:prepare":    `{"text":"half"}`,
		"/messages":           `{"text":"a"}`,
		"/v1/acls/":           `{"rules":[{"resource":"Topic:t","actions":["Pub"]}]}`,
		"/v1/users/":          `{"secret":"s"}`,
	}
	var page struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(r.get("/openapi.json").want(http.StatusOK).body, &page); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, methods := range page.Paths {
		url := strings.NewReplacer("{topic}", "t", "{group}", "g", "{user}", "bare", "{transactionId}", tx,
			"{queueId}", "0", "{id}", sent.text("messageId")).Replace(path)
		if path == "/v1/messages/{id}" {
			url += "?topic=t"
		}
		for method := range methods {
			method, body := strings.ToUpper(method), ""
			if method != http.MethodGet && method != http.MethodDelete {
				body = "{}"
				for part, b := range bodies {
					if strings.Contains(path, part) && (part != "/messages" || strings.HasSuffix(path, part)) {
						body = b
					}
				}
			}
			url := url
			if path == "/v1/topics/{topic}/messages" && method == http.MethodGet {
				url += "?key=k"
			}
			seen++
			typ := "Content-Type: application/json"
			for _, who := range []string{"X-None: x", basic("root", "wrong"), basic("nobody", "x"), "Authorization: Bearer root.9999999999.00"} {
				a := r.do(method, url, body, typ, who)
				a.refused(http.StatusUnauthorized, "UNAUTHORIZED")
				if len(a.header.Values("WWW-Authenticate")) != 2 {
					t.Errorf("%s %s: no challenge", method, url)
				}
			}
			a := r.do(method, url, body, typ, basic("bare", "bare-secret"))
			if refused := a.status == http.StatusForbidden ||
				strings.Contains(string(a.body), "FORBIDDEN"); !refused {
				t.Errorf("%s %s by a user without rights: %d %s", method, url, a.status, a.body)
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d routes seen", seen)
	}
	for _, open := range []string{"/healthz", "/livez", "/readyz", "/openapi.json", "/metrics"} {
		r.get(open).want(http.StatusOK)
	}
}

// TestUsersByREST: the first user closes the door, rules open it for others, secrets are never shown.
func TestUsersByREST(t *testing.T) {
	r := start(t, nil)
	put := func(path, body string, who string) *answer {
		return r.do(http.MethodPut, path, body, who, "Content-Type: application/json")
	}
	root, shop := basic("root", "r"), basic("shop", "s")
	put("/v1/users/shop", `{"secret":"s"}`, "X: y").refused(http.StatusBadRequest, "BAD_REQUEST")
	put("/v1/users/root", `{"secret":"r","type":"Super"}`, "X: y").want(http.StatusOK)
	put("/v1/users/shop", `{"secret":"s"}`, "X: y").refused(http.StatusUnauthorized, "UNAUTHORIZED")
	put("/v1/users/shop", `{"secret":"s"}`, root).want(http.StatusOK)
	put("/v1/users/shop", `{"type":"King"}`, root).refused(http.StatusBadRequest, "BAD_REQUEST")
	put("/v1/topics/orders", `{}`, root).want(http.StatusOK)
	r.do(http.MethodPost, "/v1/topics/orders/messages", "x", shop).refused(http.StatusForbidden, "FORBIDDEN")
	acl := put(
		"/v1/acls/shop",
		`{"rules":[{"resource":"Topic:ord*","actions":["pub"]},{"resource":"Group:g","actions":["Sub"]}]}`,
		root,
	).want(
		http.StatusOK,
	)
	if acl.text("rules.0.actions.0") != "Pub" || acl.text("rules.0.decision") != "Allow" ||
		acl.text("subject") != "User:shop" {
		t.Errorf("%s", acl.body)
	}
	r.do(http.MethodPost, "/v1/topics/orders/messages", "x", shop).want(http.StatusCreated)
	r.do(http.MethodDelete, "/v1/acls/shop?resource=Topic:ord*", "", root).want(http.StatusOK)
	r.do(http.MethodPost, "/v1/topics/orders/messages", "x", shop).refused(http.StatusForbidden, "FORBIDDEN")
	for _, path := range []string{"/v1/users", "/v1/users/root", "/v1/acls", "/v1/acls/shop", "/v1/config"} {
		a := r.do(http.MethodGet, path, "", root).want(http.StatusOK)
		if strings.Contains(string(a.body), `"r"`) || strings.Contains(string(a.body), `"s"`) {
			t.Errorf("%s shows a secret: %s", path, a.body)
		}
	}
	r.do(http.MethodGet, "/v1/users/none", "", root).refused(http.StatusNotFound, "NOT_FOUND")
	r.do(http.MethodDelete, "/v1/users/root", "", root).refused(http.StatusBadRequest, "BAD_REQUEST")
	r.do(http.MethodDelete, "/v1/users/shop", "", root).want(http.StatusOK)
	r.do(http.MethodGet, "/v1/users", "", shop).refused(http.StatusUnauthorized, "UNAUTHORIZED")
}
