// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"strconv"
	"strings"

	"github.com/roquetmq/roquet/internal/protocol"
)

// popInfo is what a pop's answer says of its queues and messages, in texts made for native clients: "retry
// queueId startOffset;…" and "retry queueId count;…", where the queueId of a single message's count is
// qo<queueId>%<offset>. Source: ExtraInfoUtil.java.
type popInfo struct {
	starts string
	counts string
}

func readPopInfo(h *protocol.PopMessageResponseHeader) popInfo {
	return popInfo{starts: h.StartOffsetInfo, counts: h.OrderCountInfo}
}

// start is the first offset that was received of a queue; the message's own where the answer does not say.
func (p popInfo) start(retry string, queueID int32, offset int64) int64 {
	if n, ok := lookup(p.starts, retry, strconv.Itoa(int(queueID))); ok {
		return n
	}
	return offset
}

// attempts is how often a message of an orderly group was delivered before, 0 where the answer does not say.
func (p popInfo) attempts(retry string, queueID int32, offset int64) int32 {
	if p.counts == "" {
		return 0
	}
	queue := strconv.Itoa(int(queueID))
	n, ok := lookup(p.counts, retry, "qo"+queue+"%"+strconv.FormatInt(offset, 10))
	if !ok {
		n, _ = lookup(p.counts, retry, queue)
	}
	return int32(n)
}

// lookup finds the number behind retry and name.
func lookup(entries, retry, name string) (int64, bool) {
	for entry := range strings.SplitSeq(entries, ";") {
		rest, ok := strings.CutPrefix(entry, retry+" ")
		if !ok {
			continue
		}
		if rest, ok = strings.CutPrefix(rest, name+" "); ok {
			n, err := strconv.ParseInt(rest, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// retryOf is the retry field of handles for messages of a topic. Source: ExtraInfoUtil.java getRetry,
// KeyBuilder.java.
func retryOf(topic string) string {
	switch {
	case !strings.HasPrefix(topic, "%RETRY%"):
		return "0"
	case strings.Contains(topic, "+"):
		return "2"
	default:
		return "1"
	}
}
