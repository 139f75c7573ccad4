package sqlite

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// faultDisk is a SQLite file system (VFS) over the real one that fails writes and syncs when a test says so. So the
// tests meet the real error paths of SQLite, not an imitation of them.
type faultDisk struct {
	name string
	// onWrite and onSync decide the result code of the next operation on a file; SQLITE_OK does the operation.
	onWrite, onSync atomic.Pointer[func(wal bool) int32]
}

// Layout of the C structures: lib.Tsqlite3_vfs and lib.Tsqlite3_io_methods. C code is called through pointers to Go
// functions of the transpiled library, which have this shape.
type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	closeFunc = func(tls *libc.TLS, file uintptr) int32
	writeFunc = func(tls *libc.TLS, file, data uintptr, amount int32, offset int64) int32
	syncFunc  = func(tls *libc.TLS, file uintptr, flags int32) int32
)

var (
	faultDisks sync.Map // address of the Tsqlite3_vfs -> *faultDisk
	faultFiles sync.Map // address of the Tsqlite3_file -> faultFile
	faultCount atomic.Int64
	methodSets sync.Map // address of the real Tsqlite3_io_methods -> address of our copy
)

type faultFile struct {
	disk *faultDisk
	wal  bool
	real *lib.Tsqlite3_io_methods
}

func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// function gives the C pointer of a Go function, and call the Go function of a C pointer.
func function[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }
func call[F any](p uintptr) F     { return *(*F)(unsafe.Pointer(&p)) }

func newFaultDisk(t *testing.T) *faultDisk {
	t.Helper()
	tls := libc.NewTLS()
	defer tls.Close()
	d := &faultDisk{name: fmt.Sprintf("fault%d", faultCount.Add(1))}
	realVFS := (*lib.Tsqlite3_vfs)(pointer(lib.Xsqlite3_vfs_find(tls, 0)))
	address := libc.Xmalloc(tls, uint64(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	vfs := (*lib.Tsqlite3_vfs)(pointer(address))
	*vfs = *realVFS
	name, err := libc.CString(d.name)
	if err != nil {
		t.Fatal(err)
	}
	vfs.FzName, vfs.FpNext, vfs.FxOpen = name, 0, function[openFunc](faultOpen)
	faultDisks.Store(address, d)
	if rc := lib.Xsqlite3_vfs_register(tls, address, 0); rc != lib.SQLITE_OK {
		t.Fatalf("failed to register file system: %d", rc)
	}
	t.Cleanup(func() {
		tls := libc.NewTLS()
		defer tls.Close()
		lib.Xsqlite3_vfs_unregister(tls, address) // the memory stays: a late connection may hold it
	})
	return d
}

func faultOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	realVFS := lib.Xsqlite3_vfs_find(tls, 0)
	rc := call[openFunc]((*lib.Tsqlite3_vfs)(pointer(realVFS)).FxOpen)(tls, realVFS, name, file, flags, outFlags)
	f := (*lib.Tsqlite3_file)(pointer(file))
	disk, ok := faultDisks.Load(vfs)
	if rc != lib.SQLITE_OK || f.FpMethods == 0 || !ok {
		return rc
	}
	realMethods := f.FpMethods
	copied, ok := methodSets.Load(realMethods)
	if !ok {
		address := libc.Xmalloc(tls, uint64(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := (*lib.Tsqlite3_io_methods)(pointer(address))
		*m = *(*lib.Tsqlite3_io_methods)(pointer(realMethods))
		m.FxClose, m.FxWrite, m.FxSync = function[closeFunc](faultClose), function[writeFunc](faultWrite), function[syncFunc](faultSync)
		copied, _ = methodSets.LoadOrStore(realMethods, address)
	}
	f.FpMethods = copied.(uintptr)
	faultFiles.Store(file, faultFile{
		disk: disk.(*faultDisk), wal: flags&lib.SQLITE_OPEN_WAL != 0, real: (*lib.Tsqlite3_io_methods)(pointer(realMethods)),
	})
	return rc
}

func loadFaultFile(file uintptr) faultFile {
	f, _ := faultFiles.Load(file)
	return f.(faultFile)
}

func faultClose(tls *libc.TLS, file uintptr) int32 {
	f := loadFaultFile(file)
	faultFiles.Delete(file)
	return call[closeFunc](f.real.FxClose)(tls, file)
}

func faultWrite(tls *libc.TLS, file, data uintptr, amount int32, offset int64) int32 {
	f := loadFaultFile(file)
	if decide := f.disk.onWrite.Load(); decide != nil {
		if rc := (*decide)(f.wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[writeFunc](f.real.FxWrite)(tls, file, data, amount, offset)
}

func faultSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	f := loadFaultFile(file)
	if decide := f.disk.onSync.Load(); decide != nil {
		if rc := (*decide)(f.wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[syncFunc](f.real.FxSync)(tls, file, flags)
}

// heal ends all faults.
func (d *faultDisk) heal() {
	d.onWrite.Store(nil)
	d.onSync.Store(nil)
}

// once fails one operation on the write-ahead log (or on the database file) with the result code.
func once(wal bool, rc int32) *func(bool) int32 {
	var done atomic.Bool
	decide := func(isWAL bool) int32 {
		if isWAL == wal && done.CompareAndSwap(false, true) {
			return rc
		}
		return lib.SQLITE_OK
	}
	return &decide
}

// always fails every operation on the write-ahead log (or on the database file) with the result code.
func always(wal bool, rc int32) *func(bool) int32 {
	decide := func(isWAL bool) int32 {
		if isWAL == wal {
			return rc
		}
		return lib.SQLITE_OK
	}
	return &decide
}

// failCommit fails the next commit: with durable at the sync, when all its frames are in the file already (no later
// sync works either, so that closing cannot tidy them away), otherwise at the first frame.
func (d *faultDisk) failCommit(durable bool) {
	if durable {
		d.onSync.Store(always(true, lib.SQLITE_IOERR_FSYNC))
	} else {
		d.onWrite.Store(once(true, lib.SQLITE_IOERR_WRITE))
	}
}

// fill lets every write find no room while the condition holds.
func (d *faultDisk) fill(condition func() bool) {
	decide := func(bool) int32 {
		if condition() {
			return lib.SQLITE_FULL
		}
		return lib.SQLITE_OK
	}
	d.onWrite.Store(&decide)
}
