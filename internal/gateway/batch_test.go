// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The messages of one request are stored in its order also where some go together and others alone: one that is too
// large for a chunk does not pass those in front of it.
func TestBatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"queues":1}`).want(http.StatusOK)
	large := strings.Repeat("x", 1<<20+1)
	lines := ""
	for _, text := range []string{"a", "b", large, "c", large, "d"} {
		lines += `{"text":"` + text + `"}` + "\n"
	}
	a := r.post("/v1/topics/t/messages:batch", lines, "Content-Type: application/x-ndjson").want(http.StatusOK)
	for i, line := range a.lines() {
		if got := pick(line, "offset"); got != fmt.Sprint(i) {
			t.Errorf("message %d is stored at %v", i, got)
		}
	}
}
