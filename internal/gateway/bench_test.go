// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// BenchmarkPublish publishes 128 bytes with the client in the same process: singly, by many at a time, and by the
// thousand.
func BenchmarkPublish(b *testing.B) {
	body := strings.Repeat("x", 128)
	line := `{"text":"` + body + `"}`
	for name, c := range map[string]struct {
		path, body, contentType string
		count                   int
	}{
		"raw":    {"/v1/topics/t/messages", body, "Content-Type: text/plain", 1},
		"json":   {"/v1/topics/t/messages", line, asJSON, 1},
		"ndjson": {"/v1/topics/t/messages:batch", strings.Repeat(line+"\n", 1000), "Content-Type: application/x-ndjson", 1000},
	} {
		b.Run(name, func(b *testing.B) {
			r := start(b, nil)
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if i%c.count != 0 {
						continue // b.N counts messages
					}
					if a := r.do(http.MethodPost, c.path, c.body, c.contentType); a.status >= http.StatusBadRequest {
						b.Errorf("%d %s", a.status, a.body)
					}
				}
			})
		})
	}
}
