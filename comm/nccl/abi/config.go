package abi

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"unsafe"
)

// Field is a field of ncclConfig_t behind its head. Later versions append to it, and change nothing.
type Field struct {
	Name   string
	Since  Version
	String bool // else an int
}

// Fields are the fields, in their order.
var Fields = []Field{
	{Name: "blocking", Since: 21400},
	{Name: "cgaClusterSize", Since: 21700},
	{Name: "minCTAs", Since: 21700},
	{Name: "maxCTAs", Since: 21700},
	{Name: "netName", Since: 21700, String: true},
	{Name: "splitShare", Since: 21800},
	{Name: "trafficClass", Since: 22600},
	{Name: "commName", Since: 22700, String: true},
	{Name: "collnetEnable", Since: 22700},
	{Name: "CTAPolicy", Since: 22700},
	{Name: "shrinkShare", Since: 22700},
	{Name: "nvlsCTAs", Since: 22700},
	{Name: "nChannelsPerNetPeer", Since: 22800},
	{Name: "nvlinkCentricSched", Since: 22800},
	{Name: "graphUsageMode", Since: 22900},
	{Name: "numRmaCtx", Since: 22900},
	{Name: "maxP2pPeers", Since: 23000},
	{Name: "graphStreamOrdering", Since: 23000},
	{Name: "launchOrderImplicit", Since: 23100},
	{Name: "numRmaSig", Since: 23100},
	{Name: "rmaEagerInit", Since: 23100},
	{Name: "hostCftMode", Since: 23100},
	{Name: "nvlsHostMode", Since: 23200},
}

// OperationFields are those of ncclCollConfig_t, the configuration of one operation. Three are for vendors, profilers
// and programs with events of their own, and stay unset.
var OperationFields = []Field{
	{Name: "ext", Since: 23100, String: true},
	{Name: "minCTAs", Since: 23100},
	{Name: "maxCTAs", Since: 23100},
	{Name: "nvlsCTAs", Since: 23100},
	{Name: "cgaClusterSize", Since: 23100},
	{Name: "algSelection", Since: 23100, String: true},
	{Name: "forceAlgSelection", Since: 23100},
	{Name: "CTAPolicy", Since: 23100},
	{Name: "userProfilerTag", Since: 23100, String: true}, // 64 bits, as an address
	{Name: "launchCompletionEvent", Since: 23200, String: true},
}

// FieldNamed returns the field of a name; false if there is none.
func FieldNamed(name string) (Field, bool) {
	for _, f := range Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

const (
	configMagic = 0xcafebeef
	configHead  = 16 // size_t size, unsigned magic and version
	undefined   = math.MinInt32
)

// Config is an ncclConfig_t, packed as the version of the library that it's for has it.
type Config struct {
	words []uint64
	keep  [][]byte // the texts that it points to
	pin   runtime.Pinner
}

// Pack packs what is set, numbers in decimal, for a library of version v. A field that this version hasn't is an error
// that names the first one that has it.
func Pack(v Version, set map[string]string) (*Config, error) { return pack(v, Fields, set) }

// PackOperation packs what is set of an operation's configuration.
func PackOperation(v Version, set map[string]string) (*Config, error) {
	return pack(v, OperationFields, set)
}

func pack(v Version, fields []Field, set map[string]string) (*Config, error) {
	bytes := make([]byte, configHead, 128)
	c := &Config{}
	type text struct {
		at int
		b  []byte
	}
	var texts []text
	for _, f := range fields {
		value, given := set[f.Name]
		if f.Since > v {
			if given {
				return nil, fmt.Errorf("%s came with %v", f.Name, f.Since)
			}
			continue
		}
		if f.String {
			bytes = append(bytes, make([]byte, (8-len(bytes)%8)%8)...)
			if given {
				texts = append(texts, text{len(bytes), append([]byte(value), 0)})
			}
			bytes = append(bytes, make([]byte, 8)...)
			continue
		}
		x := int64(undefined)
		if given {
			var err error
			if x, err = strconv.ParseInt(value, 10, 32); err != nil {
				return nil, fmt.Errorf("%s=%q is no number", f.Name, value)
			}
		}
		bytes = binary.NativeEndian.AppendUint32(bytes, uint32(int32(x)))
	}
	bytes = append(bytes, make([]byte, (8-len(bytes)%8)%8)...)
	binary.NativeEndian.PutUint64(bytes, uint64(len(bytes)))
	binary.NativeEndian.PutUint32(bytes[8:], configMagic)
	binary.NativeEndian.PutUint32(bytes[12:], uint32(v))
	for _, t := range texts {
		c.keep = append(c.keep, t.b)
		c.pin.Pin(&t.b[0])
		binary.NativeEndian.PutUint64(bytes[t.at:], uint64(uintptr(unsafe.Pointer(&t.b[0]))))
	}
	c.words = make([]uint64, len(bytes)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.words[0])), len(bytes)), bytes)
	return c, nil
}

// Pointer is what libraries take; it's good while c is reachable.
func (c *Config) Pointer() unsafe.Pointer { return unsafe.Pointer(&c.words[0]) }

// Free lets go of the texts.
func (c *Config) Free() { c.pin.Unpin() }

// Unpack reads a configuration, as a library of version v does: what isn't set is missing.
func Unpack(v Version, p unsafe.Pointer) (map[string]string, error) { return unpack(v, Fields, p) }

// UnpackOperation reads an operation's configuration.
func UnpackOperation(v Version, p unsafe.Pointer) (map[string]string, error) {
	return unpack(v, OperationFields, p)
}

func unpack(v Version, fields []Field, p unsafe.Pointer) (map[string]string, error) {
	if p == nil {
		return map[string]string{}, nil
	}
	head := unsafe.Slice((*byte)(p), configHead)
	size, magic := binary.NativeEndian.Uint64(head), binary.NativeEndian.Uint32(head[8:])
	made := Version(binary.NativeEndian.Uint32(head[12:]))
	if magic != configMagic || made > v {
		return nil, fmt.Errorf("a configuration with magic %#x of version %v, for %v", magic, made, v)
	}
	set, at := map[string]string{}, uint64(configHead)
	for _, f := range fields {
		if f.Since > made {
			break
		}
		if f.String {
			at = (at + 7) &^ 7
			if s := *(**byte)(unsafe.Add(p, at)); s != nil {
				n := 0
				for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
					n++
				}
				set[f.Name] = string(unsafe.Slice(s, n))
			}
			at += 8
			continue
		}
		if x := *(*int32)(unsafe.Add(p, at)); x != undefined {
			set[f.Name] = strconv.Itoa(int(x))
		}
		at += 4
	}
	if at = (at + 7) &^ 7; at != size {
		return nil, fmt.Errorf("a configuration of %d bytes, where version %v has %d", size, made, at)
	}
	return set, nil
}
