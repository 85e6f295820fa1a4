package config

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Allocator holds the settings of the caching allocators of devices and of pinned host memory, as PyTorch knows them.
// Sizes are in bytes. The zero value isn't the default; [DefaultAllocator] is.
type Allocator struct {
	// MaxSplitSize is the size from which on blocks are not split; the default is unlimited.
	MaxSplitSize int64 // max_split_size_mb

	// MaxNonSplitRounding is how much larger than the request a block that isn't split may be.
	MaxNonSplitRounding int64 // max_non_split_rounding_mb

	// LargeSegment is the size of the segments that requests of more than 1 MiB and less than 10 MiB share.
	LargeSegment int64 // large_segment_size_mb

	// GarbageThreshold is the part of the allowed memory above which cached memory that was not used for long is given
	// back; 0: never.
	GarbageThreshold float64 // garbage_collection_threshold

	// RoundupDivisions has, for sizes from 1 MiB, 2 MiB, ... to 32 GiB and more, the number of steps between powers of
	// two to which sizes are rounded. With 0 and 1 they're rounded to 512 bytes only.
	RoundupDivisions [16]int // roundup_power2_divisions

	// Expandable makes segments grow in a reserved range of addresses, on drivers that can reserve addresses.
	Expandable bool // expandable_segments

	// Fraction is the part of the device's memory that may be used; 1: all.
	Fraction float64 // per_process_memory_fraction

	// UnlockForDriver lets others allocate from the cache while the driver is asked for memory.
	UnlockForDriver bool // release_lock_on_cudamalloc

	// PinnedMaxRound is the size up to which requests for pinned memory are rounded to a power of two.
	PinnedMaxRound int64 // pinned_max_round_threshold_mb

	// PinnedMaxCached is the size up to which pinned memory is cached.
	PinnedMaxCached int64 // pinned_max_cached_size_mb

	// NoCaching asks the driver each time. It has a variable of its own.
	NoCaching bool // PYTORCH_NO_CUDA_MEMORY_CACHING

	// Ignored lists the options, in the form "key:value", that mean something to PyTorch and nothing here.
	Ignored string
}

// Unlimited is a size that no block reaches.
const Unlimited = math.MaxInt64

// DefaultAllocator returns the settings of an empty variable.
func DefaultAllocator() Allocator {
	return Allocator{
		MaxSplitSize: Unlimited, MaxNonSplitRounding: 20 << 20, LargeSegment: 20 << 20, Fraction: 1,
		PinnedMaxRound: Unlimited, PinnedMaxCached: Unlimited,
	}
}

// ignoredAllocatorKeys tune parts of PyTorch that have no counterpart here.
var ignoredAllocatorKeys = map[string]bool{
	"backend": true, "pinned_use_background_threads": true, "pinned_use_cuda_host_register": true,
	"pinned_use_hip_host_register": true,
	"pinned_num_register_threads":  true, "pinned_reserve_segment_size_mb": true, "pinned_free_catch_all": true,
	"graph_capture_record_stream_reuse": true, "throw_on_cudamalloc_oom": true,
}

// ParseAllocator reads the syntax of PYTORCH_ALLOC_CONF: "key:value,key:[a:b,c:d]", booleans True and False. On an
// error it returns the default.
func ParseAllocator(text string) (Allocator, error) {
	a := DefaultAllocator()
	var ignored []string
	for rest := strings.ReplaceAll(text, " ", ""); rest != ""; {
		key, value, ok := strings.Cut(rest, ":")
		if !ok || key == "" {
			return DefaultAllocator(), fmt.Errorf("want key:value,... as in max_split_size_mb:128, not %q", rest)
		}
		end := strings.IndexByte(value, ',')
		if strings.HasPrefix(value, "[") {
			end = strings.IndexByte(value, ']') + 1
			if end == 0 || end < len(value) && value[end] != ',' {
				return DefaultAllocator(), fmt.Errorf("%s: a list is closed by ] and a comma", key)
			}
		}
		if end < 0 {
			end = len(value)
		}
		value, rest = value[:end], strings.TrimPrefix(value[end:], ",")
		if ignoredAllocatorKeys[key] {
			ignored = append(ignored, key+":"+value)
			continue
		}
		if err := a.set(key, value); err != nil {
			return DefaultAllocator(), fmt.Errorf("%s: %w", key, err)
		}
	}
	a.Ignored = strings.Join(ignored, ",")
	return a, nil
}

func (a *Allocator) set(key, value string) error {
	switch key {
	case "max_split_size_mb":
		return setMiB(&a.MaxSplitSize, value, 20)
	case "max_non_split_rounding_mb":
		return setMiB(&a.MaxNonSplitRounding, value, 20)
	case "large_segment_size_mb":
		return setMiB(&a.LargeSegment, value, 11)
	case "pinned_max_round_threshold_mb":
		return setMiB(&a.PinnedMaxRound, value, 0)
	case "pinned_max_cached_size_mb":
		return setMiB(&a.PinnedMaxCached, value, 0)
	case "garbage_collection_threshold":
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f > 0 && f < 1) {
			return errors.New("want a number above 0 and below 1")
		}
		a.GarbageThreshold = f
	case "per_process_memory_fraction":
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return errors.New("want a number from 0 to 1")
		}
		a.Fraction = f
	case "expandable_segments":
		return setPythonBool(&a.Expandable, value)
	case "release_lock_on_cudamalloc", "release_lock_on_hipmalloc":
		return setPythonBool(&a.UnlockForDriver, value)
	case "roundup_power2_divisions":
		return a.setDivisions(value)
	default:
		return errors.New("no such option of the allocator")
	}
	return nil
}

func setMiB(field *int64, value string, least int64) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > math.MaxInt64>>20 {
		return fmt.Errorf("want MiB, %d or more", least)
	}
	*field = n << 20
	return nil
}

func setPythonBool(field *bool, value string) error {
	if value != "True" && value != "False" {
		return errors.New("want True or False")
	}
	*field = value == "True"
	return nil
}

// setDivisions reads one number for all sizes, or [64:8,256:4,>:1], in which 64:8 is for sizes from 64 MiB up to 128
// MiB, or to the next named size. The entry > is for all above the largest named size. Sizes below the first have its
// number.
func (a *Allocator) setDivisions(value string) error {
	number := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n&(n-1) != 0 {
			return 0, errors.New("divisions are 0 or a power of two")
		}
		return n, nil
	}
	if !strings.HasPrefix(value, "[") {
		n, err := number(value)
		if err == nil && n == 0 {
			err = errors.New("want a power of two")
		}
		for i := range a.RoundupDivisions {
			a.RoundupDivisions[i] = n
		}
		return err
	}
	last := -1 // the bucket of the largest size so far
	for i, pair := range strings.Split(strings.Trim(value, "[]"), ",") {
		size, text, _ := strings.Cut(pair, ":")
		n, err := number(text)
		if err != nil {
			return err
		}
		if size == ">" {
			for j := last + 1; j < len(a.RoundupDivisions); j++ {
				a.RoundupDivisions[j] = n
			}
			continue
		}
		mb, err := strconv.ParseUint(size, 10, 32)
		if err != nil || mb == 0 || mb&(mb-1) != 0 {
			return errors.New("sizes are powers of two in MiB")
		}
		bucket := min(bits.TrailingZeros64(mb), len(a.RoundupDivisions)-1)
		if i == 0 {
			for j := range bucket {
				a.RoundupDivisions[j] = n
			}
		}
		a.RoundupDivisions[bucket] = n
		last = bucket
	}
	return nil
}

// DeviceAllocator returns the settings of the caching allocators: those of PYTORCH_ALLOC_CONF if it is set, else those
// of its older name PYTORCH_CUDA_ALLOC_CONF.
func (c *Config) DeviceAllocator() Allocator {
	a := c.AllocConf
	for _, v := range c.vars {
		if v.Name == "PYTORCH_ALLOC_CONF" && v.Origin == Default {
			a = c.CUDAAllocConf
		}
	}
	a.NoCaching = c.NoMemoryCaching
	return a
}
