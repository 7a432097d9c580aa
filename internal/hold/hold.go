// Package hold keeps the module graph complete while rooms are being built.
package hold

import (
	_ "github.com/asynkron/protoactor-go/actor"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/mmcloughlin/avo/build"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	_ "go.uber.org/zap"
	_ "go.yaml.in/yaml/v4"
	_ "golang.org/x/sys/cpu"
	_ "golang.org/x/term"
	_ "pgregory.net/rapid"
)
