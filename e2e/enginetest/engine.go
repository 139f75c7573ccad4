package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Times that the package waits at most.
const (
	startTimeout = 3 * time.Minute // for an engine to be ready
	stopTimeout  = 2 * time.Minute // for an engine to end after SIGTERM
	readyPause   = 20 * time.Millisecond
)

// Lines of `serve` on its standard output.
const (
	listeningPrefix  = "listening on "
	playgroundPrefix = "playground: "
	tokenPrefix      = "token: "
)

// ErrExited: the engine ended before it was ready.
var ErrExited = errors.New("the engine exited")

// Options configure an engine.
type Options struct {
	Binaries Binaries
	Data     string        // data folder; kept across restarts
	Args     []string      // further arguments of `serve`
	Env      []string      // further environment, KEY=value
	Log      io.Writer     // gets what the engine prints; nil keeps only the tail
	Launched func(pid int) // called, where set, when the process is there and not ready yet
}

// Engine is one engine process and the data folder that outlives it.
type Engine struct {
	opts Options
	proc *process
}

// process is one life of an engine.
type process struct {
	cmd       *exec.Cmd
	tail      *tail
	announced chan struct{} // closed when all of the following is known
	url       string
	page      string // of the playground, with its token
	token     string
	exited    chan struct{} // closed when the process has been reaped
	exit      error         // valid after exited
}

// Start starts an engine and waits until it is ready. The caller ends it with Stop or Kill, and what it left behind
// with Cleanup.
func Start(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{opts: o}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Beside starts another engine on the same data folder, with the same environment and these further arguments.
func (e *Engine) Beside(ctx context.Context, args ...string) (*Engine, error) {
	o := e.opts
	o.Args = args
	return Start(ctx, o)
}

// Restart starts the engine again on the same data folder. The one before must have ended.
func (e *Engine) Restart(ctx context.Context) error {
	select {
	case <-e.proc.exited:
		return e.start(ctx)
	default:
		return errors.New("failed to restart the engine: it is still running")
	}
}

func (e *Engine) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("not ready in time"))
	defer cancel()
	p, err := launch(e.opts)
	if err != nil {
		return err
	}
	e.proc = p
	if err := p.ready(ctx); err != nil {
		e.Kill()
		return fmt.Errorf("failed to start the engine: %w\n%s", err, p.tail)
	}
	return nil
}

// launch starts the process and reads what it announces.
func launch(o Options) (*process, error) {
	args := append([]string{"serve", "--dev", "--addr", "127.0.0.1:0", "--data", o.Data,
		"--worker-binary", o.Binaries.Worker, "--node-dir", o.Binaries.NodeDir}, o.Args...)
	p := &process{
		cmd:       exec.Command(o.Binaries.Engine, args...), // no context: the caller's bounds the start only
		tail:      &tail{also: o.Log},
		announced: make(chan struct{}),
		exited:    make(chan struct{}),
	}
	p.cmd.Env = append(environment(), o.Env...)
	p.cmd.Stderr = p.tail
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("failed to open the engine's output: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("failed to start the engine: %w", err)
	}
	if o.Launched != nil {
		o.Launched(p.cmd.Process.Pid)
	}
	go p.watch(stdout)
	return p, nil
}

// watch reads the announcements, then waits for the process's end.
func (p *process) watch(stdout io.Reader) {
	for s := bufio.NewScanner(stdout); s.Scan(); {
		line := s.Text()
		_, _ = io.WriteString(p.tail, line+"\n") // never fails
		if p.token != "" && p.url != "" {
			continue
		}
		for prefix, field := range map[string]*string{listeningPrefix: &p.url, playgroundPrefix: &p.page, tokenPrefix: &p.token} {
			if v, ok := strings.CutPrefix(line, prefix); ok {
				*field = strings.TrimSpace(v)
			}
		}
		if p.token != "" && p.url != "" {
			close(p.announced)
		}
	}
	p.exit = p.cmd.Wait()
	close(p.exited)
}

// ready waits for the announcements and then for /readyz.
func (p *process) ready(ctx context.Context) error {
	select {
	case <-p.announced:
	case <-p.exited:
		return p.ended()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	last := errors.New("no answer")
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("failed to make a request: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("/readyz answered %d: %s", res.StatusCode, body)
		}
		select {
		case <-time.After(readyPause):
		case <-p.exited:
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
		}
	}
}

// ended says how a process ended that should not have.
func (p *process) ended() error {
	if p.exit == nil {
		return ErrExited
	}
	return fmt.Errorf("%w: %w", ErrExited, p.exit)
}

// environment is the caller's without what would change how the engine runs: its own settings and provider keys.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "HARNESS_") || strings.HasSuffix(name, "_API_KEY") || strings.HasSuffix(name, "_BASE_URL") {
			continue
		}
		env = append(env, kv)
	}
	return env
}

// Kill ends the engine with SIGKILL and waits until it is gone. Its workers go on.
func (e *Engine) Kill() {
	_ = e.proc.cmd.Process.Kill() // an engine that has ended by itself is what is wanted
	<-e.proc.exited
}

// Stop sends SIGTERM and waits for the engine to end by itself; an engine that does not is killed, which is an error,
// as is any exit code but 0.
func (e *Engine) Stop() error {
	if err := e.proc.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("failed to stop the engine: %w", err)
	}
	select {
	case <-e.proc.exited:
		if e.proc.exit != nil {
			return fmt.Errorf("the engine ended badly: %w\n%s", e.proc.exit, e.proc.tail)
		}
		return nil
	case <-time.After(stopTimeout):
		e.Kill()
		return fmt.Errorf("the engine did not end within %s of SIGTERM\n%s", stopTimeout, e.proc.tail)
	}
}

// Exited is closed when the engine process is gone.
func (e *Engine) Exited() <-chan struct{} { return e.proc.exited }

// ExitCode is how the engine process ended, -1 by a signal. It may be asked when Exited is closed.
func (e *Engine) ExitCode() int { return e.proc.cmd.ProcessState.ExitCode() }

// PID is the engine's process.
func (e *Engine) PID() int { return e.proc.cmd.Process.Pid }

// URL is the address that the engine serves, without a trailing slash.
func (e *Engine) URL() string { return e.proc.url }

// PlaygroundURL is the playground's address with a token.
func (e *Engine) PlaygroundURL() string { return e.proc.page }

// Data is the engine's data folder.
func (e *Engine) Data() string { return e.opts.Data }

// Log is the tail of what the engine printed.
func (e *Engine) Log() string { return e.proc.tail.String() }

// Client speaks with the engine as the subject of the token that `serve --dev` printed.
func (e *Engine) Client() *Client { return NewClient(e.URL(), e.proc.token) }

// ClientAs speaks with the engine as another subject, with a token of its own.
func (e *Engine) ClientAs(ctx context.Context, subject string) (*Client, error) {
	cmd := exec.CommandContext(ctx, e.opts.Binaries.Engine, "token", "--data", e.opts.Data, "--subject", subject)
	cmd.Env = environment()
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("failed to mint a token for %s: %w\n%s", subject, err, complaint.String())
	}
	return NewClient(e.URL(), strings.TrimSpace(string(out))), nil
}
