// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/roquetmq/roquet/internal/protocol"
)

// A position in the log is no way around the rights to a topic: what lies there decides, whatever the request names, or does not.
func TestPositionsNeedRightsToTheirTopic(t *testing.T) {
	t.Parallel()
	const own = `
users:
  - {username: root, password: root-secret, userType: Super}
  - {username: fit, password: fit-secret}
acls:
  - subject: User:fit
    policies:
      - entries: [{resource: "Group:g", actions: [Sub], decision: Allow}, {resource: "Topic:own", actions: [Pub, Sub], decision: Allow}]
`
	w := startWire(t, guarded(t, own))
	for _, c := range []struct {
		topic string
		view  protocol.ResponseCode
		back  protocol.ResponseCode
	}{
		{"own", protocol.Success, protocol.Success},
		{"foreign", protocol.NoPermission, protocol.NoPermission},
	} {
		stored := w.answerTo(protocol.Success, root, protocol.SendMessageV2, sendHeader(c.topic, 0, ""), []byte("x"))
		var sent protocol.SendMessageResponseHeader
		if err := sent.DecodeExt(&stored.Ext); err != nil {
			t.Fatal(err)
		}
		id, err := hex.DecodeString(sent.MsgID)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(binary.BigEndian.Uint64(id[len(id)-8:]))
		view := &protocol.ViewMessageRequestHeader{Topic: "own", Offset: at}
		w.wantCode(c.view, fit, protocol.ViewMessageByID, view, nil)
		view.Topic = ""
		w.wantCode(c.view, fit, protocol.ViewMessageByID, view, nil)
		w.wantCode(protocol.Success, root, protocol.ViewMessageByID, view, nil)
		direct := &protocol.ConsumeMessageDirectlyResultRequestHeader{
			ConsumerGroup: "g",
			ClientID:      "none",
			MsgID:         sent.MsgID,
		}
		answer := w.as(fit, protocol.ConsumeMessageDirectly, direct, nil)
		refused := protocol.ResponseCode(answer.Code) == protocol.NoPermission
		if refused == (c.topic == "own") {
			t.Errorf("consume %s directly: code %d %s", c.topic, answer.Code, answer.Remark)
		}
		back := &protocol.ConsumerSendMsgBackRequestHeader{Group: "g", Offset: at, DelayLevel: 1, OriginTopic: "own"}
		w.wantCode(c.back, fit, protocol.ConsumerSendMsgBack, back, nil)
		back.OriginTopic = ""
		w.wantCode(c.back, fit, protocol.ConsumerSendMsgBack, back, nil)
	}
}
