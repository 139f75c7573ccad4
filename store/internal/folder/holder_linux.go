package folder

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is the process that is inside, 0 when the kernel does not tell.
func (g *Gate) Holder() int {
	var st unix.Stat_t
	if unix.Fstat(int(g.f.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for s := bufio.NewScanner(locks); s.Scan(); {
		// "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; who waits has an arrow: "1: -> FLOCK ..."
		f := strings.Fields(s.Text())
		if len(f) >= 6 && f[1] == "FLOCK" && f[3] == "WRITE" && f[5] == file {
			pid, _ := strconv.Atoi(f[4])
			return max(pid, 0)
		}
	}
	return 0
}
