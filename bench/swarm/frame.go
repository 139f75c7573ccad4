package swarm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opMore  = 0x0
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
)

// maxFrame bounds what a server may send in one frame.
const maxFrame = 64 << 20

// frame is one frame of a server. Its payload is part of what was parsed.
type frame struct {
	opcode  byte
	final   bool
	payload []byte
}

var errFrame = errors.New("the server sent a masked or a compressed frame, or fragments out of order")

// parseFrame returns the first frame of b and its size with its head; size 0 means that it has not come whole.
func parseFrame(b []byte) (f frame, size int, err error) {
	if len(b) < 2 {
		return frame{}, 0, nil
	}
	f.opcode, f.final = b[0]&0x0F, b[0]&0x80 != 0
	if b[0]&0x70 != 0 || b[1]&0x80 != 0 {
		return frame{}, 0, errFrame
	}
	head, length := 2, uint64(b[1])
	switch length {
	case 126:
		if head = 4; len(b) < head {
			return frame{}, 0, nil
		}
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if head = 10; len(b) < head {
			return frame{}, 0, nil
		}
		length = binary.BigEndian.Uint64(b[2:])
	}
	if length > maxFrame {
		return frame{}, 0, fmt.Errorf("the server sent a frame of %d bytes", length)
	}
	if size = head + int(length); len(b) < size {
		return frame{}, 0, nil
	}
	f.payload = b[head:size]
	return f, size, nil
}

// appendFrame makes a frame of a client. The mask is zero, which leaves the payload as it is.
func appendFrame(b []byte, opcode byte, payload []byte) []byte {
	b = append(b, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}
