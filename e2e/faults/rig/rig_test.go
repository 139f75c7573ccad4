package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer answers each line with itself.
func echoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dialled(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func exchange(c net.Conn, line string) (string, error) {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// try dials and exchanges a line; being turned away may show at either.
func try(p *proxy, line string) (string, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url(), "http://"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, line)
}

// TestProxyBreaksConnections: what passes, passes whole; a cut ends all, a hold delays, a refusal and an absence turn away.
func TestProxyBreaksConnections(t *testing.T) {
	server := echoServer(t)
	p, err := newProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c := dialled(t, p)
	if got, err := exchange(c, "hello"); err != nil || got != "hello\n" {
		t.Fatalf("got %q, %v", got, err)
	}
	const late = 150 * time.Millisecond
	begun := time.Now()
	p.hold(late)
	if got, err := exchange(c, "late"); err != nil || got != "late\n" || time.Since(begun) < late {
		t.Fatalf("held: got %q after %s, %v", got, time.Since(begun), err)
	}
	if n := p.cut(); n != 1 {
		t.Errorf("%d connections were cut, want 1", n)
	}
	if got, err := exchange(c, "more"); err == nil {
		t.Errorf("a cut connection answers %q", got)
	}
	if got, err := try(p, "again"); err != nil || got != "again\n" {
		t.Errorf("after the cut: got %q, %v", got, err)
	}
	p.serve("")
	if got, err := try(p, "anybody"); err == nil {
		t.Errorf("nobody serves, and %q comes back", got)
	}
	p.serve(server)
	for refused := late; ; refused *= 4 { // on a machine that is too slow to come meanwhile, for longer
		begun := time.Now()
		p.refuse(refused)
		got, err := try(p, "refused")
		if err != nil {
			break
		}
		if time.Since(begun) < refused {
			t.Fatalf("a refused connection answers %q", got)
		}
	}
	for deadline := time.Now().Add(10 * time.Minute); ; {
		if got, err := try(p, "back"); err == nil && got == "back\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it refuses for ever")
		}
	}
}

func TestEndedByAnother(t *testing.T) {
	const log = `time=x level=WARN msg="engine has stopped beating" engine=e pid=12
time=x level=ERROR msg="an engine that had stopped in a commit was ended, so that others can write" pid=123
`
	for pid, want := range map[int]bool{123: true, 12: false, 23: false} {
		if endedAnother(log, pid) != want {
			t.Errorf("process %d: want %v", pid, want)
		}
	}
}

// TestOrderIsOneFile: an order appears whole, and the file is the whole of it.
func TestOrderIsOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "order")
	if err := Order(path, "delay", 1500*time.Millisecond, 2); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil || string(raw) != `{"kind":"delay","ms":1500,"after":2}` {
		t.Errorf("%s, %v", raw, err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestKeyOf(t *testing.T) {
	for text, want := range map[string]string{`[{"text":"k3-21a begins"},{"tool":"k3-21a"}]`: "k3-21a", "k0-1b [[slow 3 4]]": "k0-1b", "hello": ""} {
		if got := keyOf(text); got != want {
			t.Errorf("%s: key %q, want %q", text, got, want)
		}
	}
}
