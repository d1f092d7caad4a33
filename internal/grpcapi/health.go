// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// Services that Kubernetes' gRPC probes ask for: readiness is that of the server ("" and the messaging service's
// name say the same); liveness holds as long as this process answers at all, whatever its disk or peers do, since a
// restart cures neither.
const (
	readiness = "readiness"
	liveness  = "liveness"
)

// health is the standard gRPC health service. Who watches is told within RenewPeriod.
type health struct {
	*grpchealth.Server

	api *api
}

func newHealth(a *api) *health {
	h := &health{Server: grpchealth.NewServer(), api: a}
	h.SetServingStatus(liveness, healthpb.HealthCheckResponse_SERVING)
	return h
}

// Check says how the service is now.
func (h *health) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.look()
	return h.Server.Check(ctx, req)
}

// look finds out how the server is.
func (h *health) look() {
	state := healthpb.HealthCheckResponse_SERVING
	if h.api.isStopping() || h.api.cfg.Ready() != nil {
		state = healthpb.HealthCheckResponse_NOT_SERVING
	}
	for _, service := range []string{"", readiness, v2.MessagingService_ServiceDesc.ServiceName} {
		h.SetServingStatus(service, state)
	}
}
