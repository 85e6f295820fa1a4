package device

// Priority is the urgency of a stream: a level, which is brought down to the highest that the device has.
type Priority int

const (
	Normal Priority = 0
	High   Priority = 1 << 30
)

// poolSize is the number of streams of each priority, as CUDA in PyTorch has it.
const poolSize = 32

// IDs of streams are laid out as in PyTorch's out-of-tree integration. Bit 0 is 1, or 0 for a stream made elsewhere,
// whose handle is in the upper bits. Bits 1 to 3 are the pool, or one of the following. The rest is the number in the
// pool.
const (
	idOwn      = 5 // of NewStream
	idDefault  = 6
	idExternal = 7

	maxLevels = idOwn
)

func packID(kind int, number int64) int64 { return number<<4 | int64(kind)<<1 | 1 }

// level brings a priority within what the device has.
func (d *Device) level(p Priority) int {
	return min(max(int(p), 0), d.props.PriorityLevels-1, maxLevels-1)
}

// DefaultStream is the stream that work goes to where no other is current. It is always the same.
func (d *Device) DefaultStream() (*Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.def == nil {
		h, err := d.rt.drv.StreamCreate(d.index, 0)
		if err != nil {
			return nil, err
		}
		d.def = &Stream{dev: d, h: h, id: packID(idDefault, 0)}
	}
	return d.def, nil
}

// Stream returns a stream of the device's pool, in turn. There are 32 of each priority, so after that many calls work
// of different users shares a stream. They are never destroyed.
func (d *Device) Stream(p Priority) (*Stream, error) {
	level := d.level(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pools == nil {
		d.pools = make([][]*Stream, min(d.props.PriorityLevels, maxLevels))
		d.next = make([]int, len(d.pools))
	}
	i := d.next[level]
	d.next[level] = (i + 1) % poolSize
	return d.pooled(level, i)
}

// pooled returns a stream of a pool, making it if need be. The lock is held.
func (d *Device) pooled(level, i int) (*Stream, error) {
	if d.pools[level] == nil {
		d.pools[level] = make([]*Stream, poolSize)
	}
	if d.pools[level][i] == nil {
		h, err := d.rt.drv.StreamCreate(d.index, level)
		if err != nil {
			return nil, err
		}
		d.pools[level][i] = &Stream{dev: d, h: h, id: packID(level, int64(i)), level: level}
	}
	return d.pools[level][i], nil
}

// NewStream makes a stream of the caller's own, to be closed.
func (d *Device) NewStream(p Priority) (*Stream, error) {
	level := d.level(p)
	h, err := d.rt.drv.StreamCreate(d.index, level)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created++
	return &Stream{dev: d, h: h, id: packID(idOwn, d.created), level: level, owned: true}, nil
}

// External wraps a stream that other code made with the driver and will destroy.
func (d *Device) External(h StreamHandle) *Stream {
	return &Stream{dev: d, h: h, id: int64(h)<<4 | idExternal<<1}
}

// StreamByID returns the stream that has the ID: the default one, one of the pools, or an external one.
func (d *Device) StreamByID(id int64) (*Stream, error) {
	kind, number := int(id>>1&7), id>>4
	switch {
	case id&1 == 0 && kind == idExternal:
		return d.External(StreamHandle(number)), nil
	case id == packID(idDefault, 0):
		return d.DefaultStream()
	case id&1 == 1 && kind < maxLevels && number >= 0 && number < poolSize:
		d.mu.Lock()
		defer d.mu.Unlock()
		if kind < len(d.pools) && d.pools[kind] != nil && d.pools[kind][number] != nil {
			return d.pools[kind][number], nil
		}
	}
	return nil, Errorf(ErrInvalidHandle, d.Name(), "", "no stream has the ID %d", id)
}
