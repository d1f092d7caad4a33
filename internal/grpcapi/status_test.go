// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// What the original maps (ResponseBuilder.java) is the same here, and whatever a broker answers has a code that
// clients know.
func TestEveryResponseCodeHasACode(t *testing.T) {
	t.Parallel()
	for code, want := range map[protocol.ResponseCode]v2.Code{
		protocol.Success: v2.Code_OK, protocol.SystemBusy: v2.Code_TOO_MANY_REQUESTS,
		protocol.RequestCodeNotSupported:   v2.Code_NOT_IMPLEMENTED,
		protocol.SubscriptionGroupNotExist: v2.Code_CONSUMER_GROUP_NOT_FOUND, protocol.TopicNotExist: v2.Code_TOPIC_NOT_FOUND,
		protocol.LMQQuotaExceeded:              v2.Code_LITE_TOPIC_QUOTA_EXCEEDED,
		protocol.LiteSubscriptionQuotaExceeded: v2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
	} {
		if got := codeOf(code); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
	names := map[string]protocol.ResponseCode{}
	for _, line := range sourceLines(t, "../protocol/codes_gen.go", `\b(\w+)\s+ResponseCode = (-?\d+)`) {
		n, _ := strconv.ParseInt(line[2], 10, 32)
		names[line[1]] = protocol.ResponseCode(n)
	}
	used := 0
	for _, pattern := range []string{"../service/*.go", "../broker/*.go", "../remoting/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, found := range sourceLines(t, file, `\bprotocol\.([A-Z]\w+)`) {
				code, isCode := names[found[1]]
				if !isCode || strings.HasSuffix(file, "_test.go") {
					continue
				}
				used++
				if _, mapped := responseCodes[code]; !mapped {
					t.Errorf("%s: %s has no line in responseCodes", file, code)
				}
			}
		}
	}
	if used < 50 {
		t.Errorf("%d uses of response codes found", used)
	}
	for n := protocol.ResponseCode(-2000); n < 4000; n++ {
		got := codeOf(n)
		if _, known := v2.Code_name[int32(got)]; !known || got == v2.Code_CODE_UNSPECIFIED ||
			(got == v2.Code_OK) != (n == 0) {
			t.Errorf("%s is %s", n, got)
		}
	}
}

// sourceLines finds what matches in a file of the source.
func sourceLines(t *testing.T, file, pattern string) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want v2.Code
		says string
	}{
		{refuse(v2.Code_ILLEGAL_TOPIC, "no"), v2.Code_ILLEGAL_TOPIC, "no"},
		{fmt.Errorf("so: %w", &protocol.Error{Code: protocol.NoPermission, Remark: "denied"}), v2.Code_FORBIDDEN, "denied"},
		{&protocol.Error{Code: protocol.NoPermission}, v2.Code_FORBIDDEN, "FORBIDDEN"},
		{context.DeadlineExceeded, v2.Code_PROXY_TIMEOUT, "no answer in time: context deadline exceeded"},
		{remoting.ErrTimeout, v2.Code_PROXY_TIMEOUT, "no answer in time: no answer in time"},
		{errors.New("odd"), v2.Code_INTERNAL_SERVER_ERROR, "odd"},
	} {
		if got := statusOf(tc.err); got.GetCode() != tc.want || got.GetMessage() != tc.says {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}
