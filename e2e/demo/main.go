// Command demo shows that nothing is lost. It starts a real engine, runs an agent on each of two harnesses, cuts a
// subscriber off in mid-stream again and again, and compares what it put together with what an undisturbed subscriber
// saw and with the log.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// demoTimeout bounds the whole demonstration; a real model gets as long as that.
const demoTimeout = 15 * time.Minute

// providerVariables are passed on to the engine, which gives them to no worker.
var providerVariables = []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"}

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	data := flag.String("data", "data/demo", "data folder of the engine; it is kept")
	verbose := flag.Bool("verbose", false, "show what the engine logs")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, demoTimeout, errors.New("the demonstration took too long"))
	defer cancel()

	result, err := show(ctx, *bin, *data, *verbose)
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
	fmt.Printf("demo: %d events, %d lost, %d doubled\n", result.events, result.lost, result.doubled)
	if result.lost > 0 || result.doubled > 0 {
		os.Exit(1)
	}
}

// show runs the demonstration on an engine of its own and ends that engine and its workers, whatever happens.
func show(ctx context.Context, bin, data string, verbose bool) (sum tally, err error) {
	binaries, err := enginetest.FindBinaries(bin)
	if err != nil {
		return tally{}, err
	}
	if err := binaries.CheckNode(); err != nil {
		return tally{}, err
	}
	o := enginetest.Options{Binaries: binaries, Data: data}
	for _, name := range providerVariables {
		if v := os.Getenv(name); v != "" {
			o.Env = append(o.Env, name+"="+v)
		}
	}
	if verbose {
		o.Log = os.Stderr
	}
	began := time.Now()
	engine, err := enginetest.Start(ctx, o)
	if err != nil {
		return tally{}, err
	}
	defer func() { err = errors.Join(err, end(engine)) }()
	say("engine ready at %s after %s; data in %s", engine.URL(), time.Since(began).Round(time.Millisecond), data)

	client := engine.Client()
	defer client.Close()
	for _, p := range plays() {
		t, err := p.perform(ctx, client)
		if err != nil {
			return sum, fmt.Errorf("%s: %w", p.harness, err)
		}
		sum.add(t)
	}
	return sum, nil
}

// end stops the engine as an operator does, and then whatever is left of it.
func end(engine *enginetest.Engine) error {
	stopped := engine.Stop()
	cleaned := engine.Cleanup()
	if err := errors.Join(stopped, cleaned); err != nil {
		return err
	}
	say("engine stopped, workers ended")
	return nil
}

func say(format string, args ...any) {
	fmt.Println("  " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
