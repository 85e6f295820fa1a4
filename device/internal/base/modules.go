package base

import (
	"maps"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// Held is what must stay while a call or a graph uses it: a module, or for a function its module.
type Held[H, T any] interface {
	entered[H, T]
	Hold()
}

// Modules are a driver's, with their functions.
type Modules[M Held[driver.ModuleHandle, M], F Held[driver.FunctionHandle, F]] struct {
	modules   *Handles[driver.ModuleHandle, M]
	functions *Handles[driver.FunctionHandle, F]
	of        map[driver.ModuleHandle][]driver.FunctionHandle // guarded by the modules' lock
}

// NewModules is empty.
func NewModules[M Held[driver.ModuleHandle, M], F Held[driver.FunctionHandle, F]](n *Numbers) *Modules[M, F] {
	return &Modules[M, F]{modules: NewHandles[driver.ModuleHandle, M](n, "module"),
		functions: NewHandles[driver.FunctionHandle, F](n, "function"),
		of:        map[driver.ModuleHandle][]driver.FunctionHandle{}}
}

// Add gives a module a handle.
func (t *Modules[M, F]) Add(m M) driver.ModuleHandle { return t.modules.Add(m) }

// Find returns a module, held.
func (t *Modules[M, F]) Find(op string, h driver.ModuleHandle) (M, error) {
	return held(t.modules, op, h)
}

// Function returns a function, held.
func (t *Modules[M, F]) Function(op string, h driver.FunctionHandle) (F, error) {
	return held(t.functions, op, h)
}

// held finds a thing and holds it before another can take it out.
func held[H ~uintptr, T Held[H, T]](t *Handles[H, T], op string, h H) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.all[h]
	if l == nil {
		var none T
		return none, t.unknown(op, h)
	}
	l.v.Hold()
	return l.v, nil
}

// AddFunction gives a function a handle, unless its module was unloaded meanwhile.
func (t *Modules[M, F]) AddFunction(op, on string, h driver.ModuleHandle, m M, f F) (driver.FunctionHandle, error) {
	t.modules.mu.Lock()
	defer t.modules.mu.Unlock()
	if l := t.modules.all[h]; l == nil || l.v != m {
		return 0, driver.Errorf(driver.ErrInvalidHandle, on, op, "module %#x was unloaded meanwhile", uintptr(h))
	}
	fh := t.functions.Add(f)
	t.of[h] = append(t.of[h], fh)
	return fh, nil
}

// Take takes a module out, with its functions.
func (t *Modules[M, F]) Take(op string, h driver.ModuleHandle) (M, error) {
	m, err := t.modules.Take(op, h)
	t.modules.mu.Lock()
	defer t.modules.mu.Unlock()
	for _, f := range t.of[h] {
		_, _ = t.functions.Take(op, f)
	}
	delete(t.of, h)
	return m, err
}

// All are the modules' handles.
func (t *Modules[M, F]) All() []driver.ModuleHandle {
	t.modules.mu.RLock()
	defer t.modules.mu.RUnlock()
	return slices.Collect(maps.Keys(t.modules.all))
}
