// Command conformance runs a built engine against what others wrote: the audits of the npm package graphql-http, the
// clients graphql-ws, graphql-sse, Apollo Client, urql, curl and gorilla/websocket whose connections are cut in
// mid-stream and whose engine is replaced, and each row of the table of graphql-transport-ws. It prints what it found and fails unless all is well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// wholeTimeout bounds everything.
const wholeTimeout = 30 * time.Minute

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	here := flag.String("dir", "e2e/conformance", "folder of this package, with its node_modules")
	only := flag.String("only", "audits,clients,sockets", "parts to run")
	verbose := flag.Bool("verbose", false, "show what the engine logs")
	write := flag.Bool("write-page", false, "put the programs into docs/clients.md, and nothing else")
	flag.Parse()
	if *write {
		if err := writePage(*here); err != nil {
			fmt.Fprintln(os.Stderr, "conformance: failed:", err)
			os.Exit(1)
		}
		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, wholeTimeout, errors.New("it took too long"))
	defer cancel()

	began := time.Now()
	if err := conform(ctx, *bin, *here, strings.Split(*only, ","), *verbose); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "conformance: failed:", err)
		os.Exit(1)
	}
	fmt.Printf("conformance: all well after %s\n", time.Since(began).Round(time.Second))
}

// conform runs the parts on one stage.
func conform(ctx context.Context, bin, here string, parts []string, verbose bool) (err error) {
	if err := checkPage(here); err != nil {
		return err
	}
	s, err := newStage(ctx, bin, here, verbose)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	var failures []error
	for _, part := range []struct {
		name string
		run  func(context.Context, *stage) error
	}{
		{"audits", audit},
		{"clients", tryClients},
		{"sockets", trySockets}, // the last: it ends the engine
	} {
		if !slices.Contains(parts, part.name) {
			continue
		}
		began := time.Now()
		fmt.Println(part.name)
		if err := part.run(ctx, s); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", part.name, err))
		}
		fmt.Printf("  (%s took %s)\n", part.name, time.Since(began).Round(100*time.Millisecond))
	}
	return errors.Join(failures...)
}
