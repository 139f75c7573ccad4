package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/bench/peers/play"
)

// Peers of the fan-out benchmark; bench/peers has their programs.
const (
	peerBare   = "bare"
	peerGqlgen = "gqlgen"
	peerNode   = "node"
)

const peerStart = 30 * time.Second

// peer is a program that makes the events of a script in its memory and sends them to its subscribers.
type peer struct {
	name string
	cmd  *exec.Cmd
	url  string
	runs int // given out
}

// peerCommands builds the Go peers into folder and installs the Node one, and returns how each is started.
func peerCommands(ctx context.Context, root, folder string) (map[string][]string, error) {
	build := exec.CommandContext(ctx, "go", "build", "-o", folder+string(filepath.Separator), "./bench/peers/"+peerBare, "./bench/peers/"+peerGqlgen)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("failed to build the peers: %w\n%s", err, out)
	}
	node := filepath.Join(root, "bench", "peers", peerNode)
	if _, err := os.Stat(filepath.Join(node, "node_modules", "graphql-yoga", "package.json")); err != nil {
		install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
		install.Dir = node
		if out, err := install.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("failed to install the Node peer: %w\n%s", err, out)
		}
	}
	return map[string][]string{
		peerBare:   {filepath.Join(folder, peerBare)},
		peerGqlgen: {filepath.Join(folder, peerGqlgen)},
		peerNode:   {"node", filepath.Join(node, "server.mjs")},
	}, nil
}

func startPeer(name string, command []string) (*peer, error) {
	p := &peer{name: name, cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Env = append(os.Environ(), "NODE_ENV=production")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("failed to open the output of peer %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("failed to start peer %s: %w", name, err)
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case p.url = <-said:
	case <-time.After(peerStart):
	}
	if p.url == "" {
		return nil, errors.Join(fmt.Errorf("failed to start peer %s: it does not say where it listens", name), p.close())
	}
	return p, nil
}

func (p *peer) title() string { return p.name }
func (p *peer) pid() int      { return p.cmd.Process.Pid }
func (p *peer) addr() string  { return strings.TrimPrefix(p.url, "http://") }
func (p *peer) token() string { return "" }

func (p *peer) prepare(_ context.Context, s play.Script, runs int) ([]string, func(context.Context) error, error) {
	ids := make([]string, runs)
	for i := range ids {
		p.runs++
		ids[i] = fmt.Sprintf("run_%026d", p.runs) // as long as an engine's
	}
	s.Runs = ids
	return ids, func(ctx context.Context) error {
		body, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("failed to encode a script: %w", err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/play", bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("failed to make a request: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("failed to start the script of peer %s: %w", p.name, err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			return fmt.Errorf("peer %s answered %d to a script", p.name, res.StatusCode)
		}
		return nil
	}, nil
}

func (p *peer) close() error {
	_ = p.cmd.Process.Kill() // it has nothing to end well
	_ = p.cmd.Wait()
	return nil
}
