package swarm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds each step of opening a socket.
const dialTimeout = 60 * time.Second

// conn is one socket. It is used by its dialer, then by its loop.
type conn struct {
	fd   int
	rest []byte // of a frame that has not come whole
	part []byte // of a message that comes in fragments
	seq  int64  // last event that came
	last string // last message that was no event, for errors
}

// dial opens socket i up to its subscriptions.
func (s *Swarm) dial(addr netip.AddrPort, i int) (_ *conn, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("failed to make a socket: %w", err)
	}
	c := &conn{fd: fd}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	timeout := unix.NsecToTimeval(int64(dialTimeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		// Closing resets: thousands of sockets that wait for the last word would use up the ports.
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
	)
	if err == nil && s.o.ReceiveBuffer > 0 {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, s.o.ReceiveBuffer)
	}
	if err == nil {
		err = connect(fd, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to connect: %w", err)
	}
	if err := c.handshake(s.o); err != nil {
		return nil, err
	}
	for n, variables := range s.o.Variables(i) {
		query, _ := json.Marshal(s.o.Query) // a string always encodes
		if err := c.send(fmt.Appendf(nil, `{"id":"%d","type":"subscribe","payload":{"query":%s,"variables":%s}}`, n+1, query, variables)); err != nil {
			return nil, err
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("failed to make a socket non-blocking: %w", err)
	}
	return c, nil
}

// connect waits for the connection, whatever signals come. With a timeout set, the kernel repeats no call by itself.
func connect(fd int, addr netip.AddrPort) error {
	err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()})
	if !errors.Is(err, unix.EINTR) {
		return err
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := repeat(func() (int, error) { return unix.Poll(ready, int(dialTimeout.Milliseconds())) })
	switch {
	case err != nil:
		return err
	case n == 0:
		return unix.ETIMEDOUT
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// repeat calls f again when a signal came in between.
func repeat(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// handshake upgrades the connection and waits for the acknowledgement.
func (c *conn) handshake(o Options) error {
	request := "GET " + o.Path + " HTTP/1.1\r\nHost: " + o.Addr + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
	if err := c.write([]byte(request)); err != nil {
		return err
	}
	for end := -1; end < 0; {
		if err := c.more(); err != nil {
			return fmt.Errorf("failed to read the answer to an upgrade: %w", err)
		}
		if end = bytes.Index(c.rest, []byte("\r\n\r\n")); end >= 0 {
			if !bytes.HasPrefix(c.rest, []byte("HTTP/1.1 101 ")) {
				return fmt.Errorf("the upgrade was refused: %.200s", c.rest)
			}
			c.rest = c.rest[end+4:]
		}
	}
	init := `{"type":"connection_init"}`
	if o.Token != "" {
		init = `{"type":"connection_init","payload":{"Authorization":"Bearer ` + o.Token + `"}}`
	}
	if err := c.send([]byte(init)); err != nil {
		return err
	}
	for {
		f, size, err := parseFrame(c.rest)
		switch {
		case err != nil:
			return err
		case size == 0:
			if err := c.more(); err != nil {
				return fmt.Errorf("failed to read the acknowledgement: %w", err)
			}
			continue
		}
		c.rest = c.rest[size:]
		if bytes.Contains(f.payload, []byte(`"connection_ack"`)) {
			c.rest = bytes.Clone(c.rest)
			return nil
		}
		if f.opcode == opClose {
			return fmt.Errorf("the server closed the socket: %q", f.payload)
		}
	}
}

// more blocks for further bytes.
func (c *conn) more() error {
	var b [2048]byte
	n, err := repeat(func() (int, error) { return unix.Read(c.fd, b[:]) })
	if err != nil {
		return err
	}
	if n == 0 {
		return errGone
	}
	c.rest = append(c.rest, b[:n]...)
	return nil
}

// send writes a text message.
func (c *conn) send(payload []byte) error { return c.write(appendFrame(nil, opText, payload)) }

func (c *conn) write(b []byte) error {
	for len(b) > 0 {
		n, err := repeat(func() (int, error) { return unix.Write(c.fd, b) })
		if err != nil {
			return fmt.Errorf("failed to write to a socket: %w", err)
		}
		b = b[n:]
	}
	return nil
}

func (c *conn) close() { _ = unix.Close(c.fd) }

// take scans what has come.
func (c *conn) take(b []byte, sum *tally) error {
	if len(c.rest) > 0 {
		c.rest = append(c.rest, b...)
		b = c.rest
	}
	for {
		f, size, err := parseFrame(b)
		if err != nil {
			return err
		}
		if size == 0 {
			if len(b) == 0 {
				c.rest = nil // an idle subscriber holds no buffer
			} else {
				c.rest = append([]byte(nil), b...)
			}
			return nil
		}
		if err := c.frame(f, sum); err != nil {
			return err
		}
		b = b[size:]
	}
}

func (c *conn) frame(f frame, sum *tally) error {
	switch f.opcode {
	case opPing:
		return c.write(appendFrame(nil, opPong, f.payload))
	case opPong:
		return nil
	case opClose:
		c.last = fmt.Sprintf("%q", f.payload)
		return nil
	}
	if (f.opcode == opMore) != (c.part != nil) || len(c.part)+len(f.payload) > maxFrame {
		return errFrame
	}
	if !f.final || c.part != nil {
		c.part = append(c.part, f.payload...)
		if !f.final {
			return nil
		}
		f.payload, c.part = c.part, nil
	}
	n, err := c.scan(f.payload, sum)
	if n > 0 || err != nil {
		sum.frames++
		return err
	}
	return c.control(f.payload, sum)
}

// control judges a message without events.
func (c *conn) control(payload []byte, sum *tally) error {
	var m struct {
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("the server sent no JSON: %.200q", payload)
	}
	switch m.Type {
	case "ping":
		return c.send([]byte(`{"type":"pong"}`))
	case "complete":
		sum.completed++
	case "error":
		return fmt.Errorf("an operation failed: %.300s", m.Payload)
	case "next":
		if bytes.Contains(m.Payload, []byte(`"errors":`)) {
			return fmt.Errorf("an operation failed: %.300s", m.Payload)
		}
	}
	return nil
}
