// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// noLiteTopics is what lite consumers are told.
const noLiteTopics = "lite topics are not supported by this server; use an ordinary topic and a push or simple consumer"

// SyncLiteSubscription is not implemented: there are no lite topics here.
func (a *api) SyncLiteSubscription(
	context.Context, *v2.SyncLiteSubscriptionRequest,
) (*v2.SyncLiteSubscriptionResponse, error) {
	return nil, grpcstatus.Error(codes.Unimplemented, noLiteTopics)
}
