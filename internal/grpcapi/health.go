// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// watchPeriod is how often a health watch looks.
const watchPeriod = time.Second

// Services that Kubernetes' gRPC probes ask for: readiness is that of the server ("" and the messaging service's
// name say the same); liveness holds as long as this process answers at all, whatever its disk or peers do, since a
// restart cures neither.
const (
	readiness = "readiness"
	liveness  = "liveness"
)

// health is the standard gRPC health service.
type health struct {
	healthpb.UnimplementedHealthServer

	api *api
}

func (h *health) state(service string) healthpb.HealthCheckResponse_ServingStatus {
	if service == liveness {
		return healthpb.HealthCheckResponse_SERVING
	}
	select {
	case <-h.api.stopping:
		return healthpb.HealthCheckResponse_NOT_SERVING
	default:
	}
	if h.api.cfg.Ready() != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

func known(service string) bool {
	switch service {
	case "", readiness, liveness, v2.MessagingService_ServiceDesc.ServiceName:
		return true
	}
	return false
}

// Check says how the service is now.
func (h *health) Check(_ context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !known(req.GetService()) {
		return nil, grpcstatus.Error(codes.NotFound, "unknown service "+req.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: h.state(req.GetService())}, nil
}

// List says how all services are.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	now := &healthpb.HealthCheckResponse{Status: h.state(readiness)}
	return &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{
		"": now, readiness: now, v2.MessagingService_ServiceDesc.ServiceName: now,
		liveness: {Status: h.state(liveness)},
	}}, nil
}

// Watch says how the service is, and again when that changes.
func (h *health) Watch(
	req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse],
) error {
	last := healthpb.HealthCheckResponse_UNKNOWN
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		now := healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		if known(req.GetService()) {
			now = h.state(req.GetService())
		}
		if now != last {
			last = now
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-h.api.stopping:
			return grpcstatus.Error(codes.Unavailable, errStopping.Error())
		case <-stream.Context().Done():
			return grpcstatus.FromContextError(stream.Context().Err()).Err()
		}
	}
}
