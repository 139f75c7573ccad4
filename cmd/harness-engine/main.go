// Command harness-engine runs AI agents on many harnesses behind one GraphQL API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli is the command line. Every flag is also an environment variable, HARNESS_ and the flag's name in upper case.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the engine."`
	Chat    chatCmd    `cmd:"" help:"Talk with an agent in the terminal."`
	Doctor  doctorCmd  `cmd:"" help:"Say what is missing on this machine and how to get it."`
	Admin   adminCmd   `cmd:"" help:"Check, repair, copy and prune the data of an engine on this machine."`
	Token   tokenCmd   `cmd:"" help:"Make a token for a subject, signed with the key of a data folder (development only)."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Println("harness-engine", version())
	return nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// exitCode is an error that has been told already, except by the program's exit code.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func main() {
	if err := protectMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "harness-engine:", err)
		os.Exit(1)
	}
	var c cli
	k := kong.Parse(&c, kong.Name("harness-engine"), kong.UsageOnError(), kong.DefaultEnvars("HARNESS"),
		kong.Description("Runs AI agents on many harnesses behind one GraphQL API, with a durable event log that loses nothing."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	k.BindTo(ctx, (*context.Context)(nil))
	err := k.Run()
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "harness-engine:", err)
		os.Exit(1)
	}
}
