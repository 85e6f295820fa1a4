// Package hostmem allocates host memory that other processes on the same host can map.
//
// A [Segment] is a memory file (memfd) mapped into this process; its descriptor may be passed to a peer over a unix
// socket, and the peer maps it with [Map]. A [Block] is a part of a segment, handed out by [Alloc] from a pool: small
// blocks share segments, large ones have their own.
//
//	hostmem.SetColor(rank)                     // before the first allocation
//	b, err := hostmem.Alloc(64 << 20)          // contents undefined; AllocZero clears
//	defer b.Free()
//	seg := b.Segment()                         // send seg.FD(), Size() and Color() to the peer, b.Offset() with each use
//
//	m, err := hostmem.Map(fd, size, color)     // in the peer
//	defer m.Unmap()
//
// # Invariants
//
//   - A segment's size never changes: the file is sealed against growing and shrinking, and [Map] refuses files that
//     are not, so that no peer can make this process fault by truncating what it shares.
//   - Segment memory is touched once, when it is made, because the first touch of a 4 KiB page costs far more than its
//     use; freed blocks are kept for reuse up to [SetCacheLimit]. Only segments of [NewSparse] and [AllocSparse] begin
//     without memory.
//   - A segment ID is never reused in the life of the process, so it may key caches of what peers have mapped.
//   - Descriptors are close-on-exec. A child made by fork and exec inherits nothing; a child made by fork alone shares
//     the memory and must not allocate or free.
//   - Every function is safe for concurrent use.
//
// # Sandboxes
//
// Where the system refuses memory files, [Alloc] and [AllocSparse] give private memory, after one warning; [Find]
// doesn't find it. [NewSegment] and [NewSparse], whose memory is meant for peers, say which call was refused. Systems
// other than Linux have no memory files: there the same holds, without the warning.
//
// # Colours
//
// Zen cores predict the L1 way of a load from a hash of address bits 12 to 27 (Lipp et al., "Take A Way", 2020). Two
// buffers that agree in these bits evict each other's prediction at every step when they are streamed together, which
// costs a factor of eight on Zen 4. Large mappings laid out one after the other agree exactly. So every segment is
// mapped at an address whose remainder modulo 256 MiB, its colour, is chosen: ranks lie a few pages apart, and the
// segments of one rank lie 2 MiB apart (see [SetColor]). A peer maps the segment at the owner's colour, so the rule
// holds across processes as well.
package hostmem
