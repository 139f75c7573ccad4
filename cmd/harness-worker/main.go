// Command harness-worker runs inside a sandbox: it serves one conversation in one epoch, drives one harness, and owns
// everything that the harness starts. It is started by the engine's sandbox manager, by way of a shim (the same program),
// and outlives the engine. See docs/workers.md.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

func main() {
	var c commands
	parsed := kong.Parse(&c,
		kong.Name("harness-worker"),
		kong.Description("Serves one conversation with one harness, over a unix socket."),
		kong.UsageOnError(),
	)
	do := func() error { return run(c.Serve) }
	if strings.HasPrefix(parsed.Command(), "shim") {
		do = func() error { return runShim(c.Shim) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "harness-worker:", err)
		os.Exit(1)
	}
}
