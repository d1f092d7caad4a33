module github.com/roquetmq/roquet/bench

go 1.26.0

require (
	github.com/roquetmq/roquet v0.0.0
	golang.org/x/net v0.61.0
	golang.org/x/sync v0.25.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
)

replace github.com/roquetmq/roquet => ..
