package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"sync"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// blas multiplies matrices: cuBLAS or hipBLAS.
type blas struct {
	companion[abi.BLAS]
	numbers abi.BLASNumbers
}

func newBLAS(f *abi.Family, places []string) *blas {
	x := &blas{numbers: f.Numbers(), companion: companion[abi.BLAS]{name: f.BLAS, variable: "CHORUS_BLAS_LIBRARY",
		files: func(c *config.Config) string { return c.BLASLibrary }, places: places}}
	if f.Name == "hip" {
		x.accepts = isHipBLAS2
	}
	return x
}

// isHipBLAS2 refuses older versions. Until 3.0 the functions without _v2 have other numbers of types, and until 2.0
// there are no others.
func isHipBLAS2(lib *dl.Library) error {
	_, second := lib.Symbol("hipblasGemmEx_v2")
	_, later := lib.Symbol("hipblasSetMathMode")
	if !second && !later {
		return fmt.Errorf("%s is hipBLAS before 2.0", lib.Path())
	}
	return nil
}

// products are those of a GPU.
type products struct {
	mu    sync.Mutex
	spare []*product

	off, ltOff, solverOff, sparseOff error // the library can't be used on the GPU

	sizesOnce sync.Once
	sizes     [2]int // of workspaces
}

// workspaces are memory that libraries use for a stream's work: plain products and fused ones. cuBLASLt has cuBLAS's.
type workspaces [2]uintptr

const (
	plainProduct = iota
	fusedProduct
)

// product is the libraries' state for a stream: handles, and memory that its work alone uses.
type product struct {
	h         abi.BLASHandle // 0: none yet
	bound     bool           // it's the stream's
	atomics   bool
	lt        abi.LtHandle // 0: none yet
	workspace workspaces   // of work that isn't captured
	given     uintptr      // the workspace that h has

	solver      abi.SolverHandle // 0: none yet
	solverBound bool             // it's the stream's

	sparse      abi.SparseHandle // 0: none yet
	sparseBound bool             // it's the stream's
}

var productTypes = map[dtype.DType]int32{dtype.Float16: abi.Real16, dtype.BFloat16: abi.RealB16,
	dtype.Float32: abi.Real32, dtype.Float64: abi.Real64, dtype.Complex64: abi.Complex32, dtype.Complex128: abi.Complex64}

// multiply is Compute of a product. A graph has a workspace of its own, since it may run while the stream does.
func (d *Driver) multiply(h driver.StreamHandle, p *driver.GEMM) error {
	const op = "multiply"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if err := b.blas.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if err := s.capturesProducts(op, b.family.BLAS, b.blasWorkspace(op)); err != nil {
		return err
	}
	if err := p.Check(b.Name); err != nil {
		return err
	}
	typ, ok := productTypes[p.Type]
	if !ok {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has no products of %v", b.family.BLAS, p.Type)
	}
	for _, m := range p.Matrices() {
		if err := d.multiplied(b, op, &m, p.Count); err != nil {
			return err
		}
	}
	if s.capture == nil && s.broken() != nil {
		return b.Broken() // left out
	}
	x := b.productOf(s)
	if s.capture != nil {
		defer b.unbind(op, s, x) // the handle is the stream's, and the workspace the graph's
	}
	if err := b.bind(op, s, x, s.workspaces(x)); err != nil {
		return err
	}
	if atomics := p.Atomics && b.family.Name == "hip"; atomics != x.atomics { // of cuBLAS PyTorch allows none, either
		mode := int32(0)
		if atomics {
			mode = 1
		}
		if err := b.blasCall(op, "SetAtomicsMode", func() abi.Status { return b.blas.table.SetAtomics(x.h, mode) }); err != nil {
			return err
		}
		x.atomics = atomics
	}
	m := d.before(s)
	err = b.multiply(op, x, p, typ)
	m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.BLAS}, err)
	if err == nil && s.capture != nil {
		for _, m := range p.Matrices() {
			d.capturesUse(s, op, m.Ptr, m.Bytes(p.Count))
		}
	}
	return err
}

// capturesProducts refuses products in a capture of others, who may keep its graph longer than a workspace, and in one
// that has no workspace. The stream is locked.
func (s *stream) capturesProducts(op, library string, workspace int) error {
	if err := s.permits(op); err != nil {
		return err
	}
	if s.foreign() || s.capture != nil && workspace == 0 {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "products of %s aren't captured without a workspace of the "+
			"graph's own", library)
	}
	return nil
}

// capturesUse notes memory that a node uses, which has been checked. The stream is locked.
func (d *Driver) capturesUse(s *stream, op string, p driver.Ptr, bytes int) {
	if at, err := d.side(s.b, op, "", p, bytes); err == nil {
		s.capture.uses(use{p, bytes, at.Type})
	}
}

// BLASHandle is [driver.BLASHandles].BLASHandle.
func (d *Driver) BLASHandle(h driver.StreamHandle) (uintptr, error) {
	const op = "handle of products"
	s, err := d.stream(op, h)
	if err != nil {
		return 0, err
	}
	defer s.Unlock()
	b := s.b
	if err := b.blas.open(); err != nil {
		return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	x := b.productOf(s)
	if err := b.bind(op, s, x, &x.workspace); err != nil {
		return 0, err
	}
	return uintptr(x.h), nil
}

// multiplied refuses matrices that a library can't reach, or whose sizes it has no numbers for.
func (d *Driver) multiplied(b *gpu, op string, m *driver.NamedMatrix, count int) error {
	if err := d.touches(b, op, m.Name, m.Ptr, m.Bytes(count)); err != nil {
		return err
	}
	if max(m.Rows, m.Columns, m.Pitch, count) > math.MaxInt32 {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has lines of more than 31 bits", m.Name)
	}
	return nil
}

// touches refuses memory that a GPU has no access to.
func (d *Driver) touches(b *gpu, op, what string, p driver.Ptr, bytes int) error {
	at, err := d.side(b, op, what, p, bytes)
	switch {
	case err != nil:
		return err
	case at.Type == driver.Unmanaged:
		return driver.Errorf(driver.ErrInvalidPointer, b.Name, op, "%s at %v isn't memory of a device", what, p)
	case at.Type == driver.DeviceMemory:
		return d.Reachable(&b.Device, op, what, at.Device)
	}
	return nil
}

// multiply calls the library. Its matrices have dense columns, so that it computes the transposed product.
func (b *gpu) multiply(op string, x *product, p *driver.GEMM, typ int32) error {
	n := b.blas.numbers
	trans := func(m *driver.Matrix) int32 {
		if m.Transposed {
			return n.Transposed
		}
		return n.Straight
	}
	alpha, beta := scalar(p.Type, p.Alpha), scalar(p.Type, p.Beta)
	var pin runtime.Pinner // the library reads them before it returns
	defer pin.Unpin()
	pin.Pin(&alpha[0])
	pin.Pin(&beta[0])
	compute := n.In32
	if p.Type == dtype.Float64 || p.Type == dtype.Complex128 {
		compute = n.In64
	}
	rows, columns, depth := int32(p.Columns), int32(p.Rows), int32(p.Depth)
	t := &b.blas.table
	if p.Count == 1 {
		return b.blasCall(op, "GemmEx", func() abi.Status {
			return t.Multiply(x.h, trans(&p.B), trans(&p.A), rows, columns, depth, &alpha[0], uintptr(p.B.Ptr), typ,
				int32(p.B.Pitch), uintptr(p.A.Ptr), typ, int32(p.A.Pitch), &beta[0], uintptr(p.Out.Ptr), typ,
				int32(p.Out.Pitch), compute, n.Default)
		})
	}
	return b.blasCall(op, "GemmStridedBatchedEx", func() abi.Status {
		return t.Many(x.h, trans(&p.B), trans(&p.A), rows, columns, depth, &alpha[0], uintptr(p.B.Ptr), typ,
			int32(p.B.Pitch), int64(p.B.Next), uintptr(p.A.Ptr), typ, int32(p.A.Pitch), int64(p.A.Next), &beta[0],
			uintptr(p.Out.Ptr), typ, int32(p.Out.Pitch), int64(p.Out.Next), int32(p.Count), compute, n.Default)
	})
}

// scalar is a number of the type that products of a type are computed in.
func scalar(t dtype.DType, z complex128) []byte {
	narrow := func(to []byte, f float64) []byte {
		return binary.NativeEndian.AppendUint32(to, math.Float32bits(float32(f)))
	}
	wide := func(to []byte, f float64) []byte { return binary.NativeEndian.AppendUint64(to, math.Float64bits(f)) }
	to := make([]byte, 0, 16)
	switch t {
	case dtype.Complex64:
		return narrow(narrow(to, real(z)), imag(z))
	case dtype.Float64:
		return wide(to, real(z))
	case dtype.Complex128:
		return wide(wide(to, real(z)), imag(z))
	}
	return narrow(to, real(z))
}

// blasCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) blasCall(op, call string, f func() abi.Status) error {
	return b.productCall(op, b.family.BLAS, b.blas.place, call, b.blas.table.Text, f)
}

// productCall is a call of one of the libraries of products, which have the same statuses.
func (b *gpu) productCall(op, library, place, call string, texts func(abi.Status) string,
	f func() abi.Status) error {
	var s abi.Status
	if err := b.call(op, call, func() abi.Result { s = f(); return abi.Success }); err != nil || s == abi.Done {
		return err
	}
	text := s.String()
	if texts != nil {
		text = fmt.Sprintf("%s (%d)", texts(s), int32(s))
	}
	return driver.Errorf(kindOfStatus(&b.blas.numbers, s), b.Name, op, "%s (%s): %s: %s", library, place, call, text)
}

// kindOfStatus is the kind of error that a status is to callers.
func kindOfStatus(n *abi.BLASNumbers, s abi.Status) driver.Kind {
	switch s {
	case n.NotSupported, n.InvalidValue, n.ArchMismatch:
		return driver.ErrUnsupported
	case n.AllocFailed:
		return driver.ErrOutOfMemory
	}
	return driver.ErrInternal
}

// productOf is what a stream multiplies with. It may have been that of a stream that is gone.
func (b *gpu) productOf(s *stream) *product {
	if s.product == nil {
		b.products.mu.Lock()
		defer b.products.mu.Unlock()
		if n := len(b.products.spare); n > 0 {
			s.product, b.products.spare = b.products.spare[n-1], b.products.spare[:n-1]
		} else {
			s.product = &product{}
		}
	}
	return s.product
}

// create makes a handle of a library; one that could make none isn't asked again.
func (b *gpu) create(off *error, f func() error) error {
	b.products.mu.Lock()
	defer b.products.mu.Unlock()
	if *off == nil {
		*off = f()
	}
	return *off
}

// bind makes the handle of a stream's products the stream's, with one of some workspaces.
func (b *gpu) bind(op string, s *stream, x *product, list *workspaces) error {
	if !x.bound {
		if err := b.bindStream(op, s, x); err != nil {
			return err
		}
	}
	bytes := b.blasWorkspace(op)
	if bytes == 0 {
		return nil
	}
	p, err := b.workspaceFor(op, s, list, plainProduct)
	if err != nil || p == x.given {
		return err
	}
	err = b.blasCall(op, "SetWorkspace", func() abi.Status { return b.blas.table.Workspace(x.h, p, uint64(bytes)) })
	if err == nil {
		x.given = p
	}
	return err
}

// unbind takes the workspace of a graph from the handle, which has the stream's own then, or the library's.
func (b *gpu) unbind(op string, s *stream, x *product) {
	var err error
	if x.workspace[plainProduct] != 0 {
		err = b.bind(op, s, x, &x.workspace)
	} else if x.given != 0 {
		err = b.bindStream(op, s, x)
	}
	x.bound = x.bound && err == nil
}

func (b *gpu) bindStream(op string, s *stream, x *product) error {
	t := &b.blas.table
	if x.h == 0 {
		if err := b.create(&b.products.off, func() error {
			return b.blasCall(op, "Create", func() abi.Status { return t.Create(&x.h) })
		}); err != nil {
			return err
		}
	}
	// hipBLAS allows them at first, and cuBLAS doesn't
	x.atomics = false
	err := b.blasCall(op, "SetAtomicsMode", func() abi.Status { return t.SetAtomics(x.h, 0) })
	if err == nil {
		err = b.blasCall(op, "SetStream", func() abi.Status { return t.SetStream(x.h, s.h) })
	}
	x.bound, x.given = err == nil, 0 // SetStream takes the workspace away
	return err
}

// workspaces are those of the stream's next work: its own, or a capture's.
func (s *stream) workspaces(x *product) *workspaces {
	if s.capture != nil {
		return s.capture.workspaces(s)
	}
	return &x.workspace
}

// workspaceFor is one of some workspaces, which gets its memory now if it has none. If there isn't enough, it waits for
// memory that was freed under work.
func (b *gpu) workspaceFor(op string, s *stream, list *workspaces, kind int) (uintptr, error) {
	if b.family.Name == "cuda" {
		kind = plainProduct
	}
	at := &list[kind]
	if bytes := b.workspaceSize(op, kind); *at == 0 && bytes > 0 {
		alloc := func() error {
			return b.call(op, "MemAlloc", func() abi.Result { return b.MemAlloc(at, uint64(bytes)) })
		}
		err := alloc()
		if errors.Is(err, driver.ErrOutOfMemory) {
			b.d.deferred.Reclaim(b)
			err = alloc()
		}
		if s.capture != nil && errors.Is(err, driver.ErrOutOfMemory) {
			err = driver.Errorf(driver.ErrCapture, b.Name, op, "no %d bytes for a workspace of the graph's own: %w", bytes, err)
		}
		if err != nil {
			*at = 0
			return 0, err
		}
	}
	return *at, nil
}

// free gives the memory back.
func (w *workspaces) free(b *gpu) {
	for _, p := range w {
		if p != 0 {
			_ = b.call("free a workspace", "MemFree", func() abi.Result { return b.MemFree(p) })
		}
	}
}

// dropHandles gives a stream's handles and workspace back.
func (b *gpu) dropHandles(x *product) {
	if x.h != 0 {
		_ = b.blasCall("close", "Destroy", func() abi.Status { return b.blas.table.Destroy(x.h) })
	}
	if x.lt != 0 {
		_ = b.ltCall("close", "Destroy", func(t *abi.Lt) abi.Status { return t.Destroy(x.lt) })
	}
	if x.solver != 0 {
		_ = b.solverCall("close", "Destroy", func() abi.SolverStatus { return b.solver.table.Destroy(x.solver) })
	}
	if x.sparse != 0 {
		_ = b.sparseCall("close", "Destroy", func(t *abi.Sparse) abi.SparseStatus { return t.Destroy(x.sparse) })
	}
	x.workspace.free(b)
}

// dropProduct keeps a stream's handle for another one, when work that uses its workspace is done.
func (d *Driver) dropProduct(s *stream) {
	if x, b := s.product, s.b; x != nil {
		s.product, x.bound, x.solverBound, x.sparseBound = nil, false, false, false
		d.deferred.Add(b, []*gpu{b}, 0, func() {
			b.products.mu.Lock()
			defer b.products.mu.Unlock()
			b.products.spare = append(b.products.spare, x)
		})
	}
}

// closeProducts gives all handles back.
func (b *gpu) closeProducts() {
	b.mu.Lock()
	for s := range b.streams {
		if s.product != nil {
			b.products.spare = append(b.products.spare, s.product)
			s.product = nil
		}
	}
	b.mu.Unlock()
	for _, x := range b.products.spare {
		b.dropHandles(x)
	}
	b.products.spare = nil
}

// PyTorch's workspaces, in bytes.
const (
	cudaWorkspace   = 4096*1024*2 + 16*1024*8
	hopperWorkspace = 4096 * 8 * 1024 // also Blackwell's
	hipWorkspace    = 32 << 20
	hip94Workspace  = 128 << 20 // of gfx94x and gfx95x
	hipLtWorkspace  = 76 << 20  // hipBLASLt's; cuBLASLt has cuBLAS's
)

// blasWorkspace is how much memory a handle of plain products is given; 0 of a library that takes none.
func (b *gpu) blasWorkspace(op string) int {
	if !b.blas.caps.Has("workspaces") {
		return 0
	}
	return b.workspaceSize(op, plainProduct)
}

// workspaceSize is how much memory a library may use for a kind of products, by PyTorch's rules.
func (b *gpu) workspaceSize(op string, kind int) int {
	x := &b.products
	x.sizesOnce.Do(func() {
		x.sizes = [2]int{b.workspace(op), hipLtWorkspace}
		if b.family.Name == "cuda" {
			x.sizes[fusedProduct] = x.sizes[plainProduct]
		}
	})
	return x.sizes[kind]
}

// workspace is how much memory a handle gets, by PyTorch's rules.
func (b *gpu) workspace(op string) int {
	c, err := config.Load(nil)
	if err != nil {
		return 0
	}
	text, name, bytes := c.CUBLASWorkspace, "CUBLAS_WORKSPACE_CONFIG", cudaWorkspace
	if b.family.Name == "hip" {
		text, name, bytes = c.HIPBLASWorkspace, "HIPBLAS_WORKSPACE_CONFIG", hipWorkspace
		if b.Props.Major == 9 && (b.Props.Minor == 4 || b.Props.Minor == 5) {
			bytes = hip94Workspace
		}
	} else if m := b.Props.Major; m == 9 || m == 10 || m == 12 {
		bytes = hopperWorkspace
	}
	if text == "" {
		return bytes
	}
	if n, ok := parseWorkspace(text); ok {
		return n
	}
	slog.Warn("chorus: could not parse "+name+", which is :KIB:COUNT; a default holds", "value", text, "bytes", bytes)
	return bytes
}

var workspacePart = regexp.MustCompile(`:([0-9]+):([0-9]+)`)

// parseWorkspace adds the parts of a workspace's configuration. ok is false if there's none, or it's beyond all memory.
func parseWorkspace(text string) (bytes int, ok bool) {
	for _, part := range workspacePart.FindAllStringSubmatch(text, -1) {
		kib, err := strconv.ParseUint(part[1], 10, 30)
		count, e := strconv.ParseUint(part[2], 10, 20)
		if err != nil || e != nil {
			return 0, false
		}
		bytes, ok = bytes+int(kib)*1024*int(count), true
	}
	return bytes, ok && bytes < 1<<50
}
