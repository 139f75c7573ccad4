// Package faultdisk is a SQLite file system (VFS) over the real one that fails writes and syncs when it is told to. So
// the store meets the real error paths of SQLite, not an imitation of them. It is linked into tests and into builds with
// the tag faults, never into the product.
package faultdisk

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Decide gives the result code of the next operation on a file, the write-ahead log or another; SQLITE_OK does the
// operation.
type Decide func(wal bool) int32

// Disk is one such file system.
type Disk struct {
	Name            string // for Options of the driver
	OnWrite, OnSync atomic.Pointer[Decide]

	address uintptr // of its Tsqlite3_vfs
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
	disks      sync.Map // address of the Tsqlite3_vfs -> *Disk
	files      sync.Map // address of the Tsqlite3_file -> file
	count      atomic.Int64
	methodSets sync.Map // address of the real Tsqlite3_io_methods -> address of our copy
)

type openFile struct {
	disk *Disk
	wal  bool
	real *lib.Tsqlite3_io_methods
}

func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// function gives the C pointer of a Go function, and call the Go function of a C pointer.
func function[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }
func call[F any](p uintptr) F     { return *(*F)(unsafe.Pointer(&p)) }

// New registers a file system under a name of its own.
func New() (*Disk, error) {
	tls := libc.NewTLS()
	defer tls.Close()
	d := &Disk{Name: fmt.Sprintf("fault%d", count.Add(1))}
	realVFS := (*lib.Tsqlite3_vfs)(pointer(lib.Xsqlite3_vfs_find(tls, 0)))
	d.address = libc.Xmalloc(tls, uint64(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	vfs := (*lib.Tsqlite3_vfs)(pointer(d.address))
	*vfs = *realVFS
	name, err := libc.CString(d.Name)
	if err != nil {
		return nil, fmt.Errorf("failed to name file system: %w", err)
	}
	vfs.FzName, vfs.FpNext, vfs.FxOpen = name, 0, function[openFunc](open)
	disks.Store(d.address, d)
	if rc := lib.Xsqlite3_vfs_register(tls, d.address, 0); rc != lib.SQLITE_OK {
		return nil, fmt.Errorf("failed to register file system: %d", rc)
	}
	return d, nil
}

// Close takes the file system off SQLite's list. Its memory stays: a late connection may hold it.
func (d *Disk) Close() {
	tls := libc.NewTLS()
	defer tls.Close()
	lib.Xsqlite3_vfs_unregister(tls, d.address)
}

func open(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	realVFS := lib.Xsqlite3_vfs_find(tls, 0)
	rc := call[openFunc]((*lib.Tsqlite3_vfs)(pointer(realVFS)).FxOpen)(tls, realVFS, name, file, flags, outFlags)
	f := (*lib.Tsqlite3_file)(pointer(file))
	disk, ok := disks.Load(vfs)
	if rc != lib.SQLITE_OK || f.FpMethods == 0 || !ok {
		return rc
	}
	realMethods := f.FpMethods
	copied, ok := methodSets.Load(realMethods)
	if !ok {
		address := libc.Xmalloc(tls, uint64(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := (*lib.Tsqlite3_io_methods)(pointer(address))
		*m = *(*lib.Tsqlite3_io_methods)(pointer(realMethods))
		m.FxClose, m.FxWrite, m.FxSync = function[closeFunc](closeFile), function[writeFunc](write), function[syncFunc](syncFile)
		copied, _ = methodSets.LoadOrStore(realMethods, address)
	}
	f.FpMethods = copied.(uintptr)
	files.Store(file, openFile{
		disk: disk.(*Disk), wal: flags&lib.SQLITE_OPEN_WAL != 0, real: (*lib.Tsqlite3_io_methods)(pointer(realMethods)),
	})
	return rc
}

func load(file uintptr) openFile {
	f, _ := files.Load(file)
	return f.(openFile)
}

func closeFile(tls *libc.TLS, file uintptr) int32 {
	f := load(file)
	files.Delete(file)
	return call[closeFunc](f.real.FxClose)(tls, file)
}

func write(tls *libc.TLS, file, data uintptr, amount int32, offset int64) int32 {
	f := load(file)
	if decide := f.disk.OnWrite.Load(); decide != nil {
		if rc := (*decide)(f.wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[writeFunc](f.real.FxWrite)(tls, file, data, amount, offset)
}

func syncFile(tls *libc.TLS, file uintptr, flags int32) int32 {
	f := load(file)
	if decide := f.disk.OnSync.Load(); decide != nil {
		if rc := (*decide)(f.wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[syncFunc](f.real.FxSync)(tls, file, flags)
}

// Heal ends all faults.
func (d *Disk) Heal() {
	d.OnWrite.Store(nil)
	d.OnSync.Store(nil)
}

// Once fails one operation on the write-ahead log (or on the database file) with the result code.
func Once(wal bool, rc int32) *Decide {
	var done atomic.Bool
	var decide Decide = func(isWAL bool) int32 {
		if isWAL == wal && done.CompareAndSwap(false, true) {
			return rc
		}
		return lib.SQLITE_OK
	}
	return &decide
}

// Always fails every operation on the write-ahead log (or on the database file) with the result code.
func Always(wal bool, rc int32) *Decide {
	var decide Decide = func(isWAL bool) int32 {
		if isWAL == wal {
			return rc
		}
		return lib.SQLITE_OK
	}
	return &decide
}

// FailCommit fails the next commit: with durable at the sync, when all its frames are in the file already (no later
// sync works either, so that closing cannot tidy them away), otherwise at the first frame.
func (d *Disk) FailCommit(durable bool) {
	if durable {
		d.OnSync.Store(Always(true, lib.SQLITE_IOERR_FSYNC))
	} else {
		d.OnWrite.Store(Once(true, lib.SQLITE_IOERR_WRITE))
	}
}

// Fill lets every write find no room while the condition holds.
func (d *Disk) Fill(condition func() bool) {
	var decide Decide = func(bool) int32 {
		if condition() {
			return lib.SQLITE_FULL
		}
		return lib.SQLITE_OK
	}
	d.OnWrite.Store(&decide)
}
