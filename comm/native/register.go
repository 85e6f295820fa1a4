package native

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// registry is the memory that a rank has registered. Registered tensors stay
// alive, so that the mappings that peers have of them stay useful.
type registry struct {
	mu      sync.Mutex
	tensors map[unsafe.Pointer]*tensor.Tensor
}

// Register implements backend.Registrar. Peers map a segment when they first need it; what can be done ahead is to make
// sure that the segment lasts. Other memory has nothing to be prepared for.
func (g *group) Register(t *tensor.Tensor) error {
	at := g.Where()
	at.Op = "register"
	r := &g.registered
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tensors == nil {
		r.tensors = map[unsafe.Pointer]*tensor.Tensor{}
	}
	if r.tensors[t.Pointer()] != nil {
		return &backend.InvalidArgumentError{Where: at, Detail: "the tensor is registered already"}
	}
	r.tensors[t.Pointer()] = t
	return nil
}

// Deregister implements backend.Registrar.
func (g *group) Deregister(t *tensor.Tensor) error {
	at := g.Where()
	at.Op = "deregister"
	r := &g.registered
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tensors[t.Pointer()] == nil {
		return &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf("this tensor of %d elements is not registered",
			t.NumEl())}
	}
	delete(r.tensors, t.Pointer())
	return nil
}
