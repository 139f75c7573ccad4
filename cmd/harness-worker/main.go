// Command harness-worker runs inside a sandbox: it serves one conversation in one epoch, drives one harness, and owns
// everything that the harness starts. It is started by the engine's sandbox manager and outlives the engine. See
// docs/workers.md.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

func main() {
	var o options
	kong.Parse(&o,
		kong.Name("harness-worker"),
		kong.Description("Serves one conversation with one harness, over a unix socket."),
		kong.UsageOnError(),
	)
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "harness-worker:", err)
		os.Exit(1)
	}
}
