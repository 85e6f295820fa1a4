// The checks of accesses: compilers put a call before each, under the names of ThreadSanitizer's and
// UndefinedBehaviorSanitizer's runtimes.
#include "worker.h"

#include <cstdio>
#include <cstring>

using namespace emulated;

#define SITE ((uintptr_t)__builtin_return_address(0))

namespace {

enum class Kind { read, write, change }; // the last is an atomic operation that does both

std::string hex(uintptr_t at) {
	char text[24];
	snprintf(text, sizeof text, "0x%zx", at);
	return text;
}

std::string told(Kind kind, uintptr_t at, size_t bytes) {
	const char *verb = kind == Kind::read ? "reads " : kind == Kind::write ? "writes " : "changes ";
	return verb + std::to_string(bytes) + " bytes at " + hex(at);
}

// outside fails for an access outside of what kernels may touch.
[[noreturn]] __attribute__((noinline)) void outside(Worker &w, uintptr_t at, size_t bytes, Kind kind, uintptr_t site) {
	Shadow *s = w.shadow_of(at, 1), *before = at == 0 ? nullptr : w.shadow_of(at - 1, 1);
	std::string what = told(kind, at, bytes) + ", outside of all allocations";
	if (s != nullptr)
		what = told(kind, at, bytes) + ", beyond the end of " + std::to_string(s->range.bytes) + " bytes at " +
		    hex(s->range.base);
	else if (before != nullptr)
		what += ", directly behind " + std::to_string(before->range.bytes) + " bytes at " + hex(before->range.base);
	w.fail(Fault::illegal_address, site, what);
}

std::string race(const Worker &w, const Shadow *s, Tag other, bool wrote, uintptr_t at, size_t bytes, Kind kind) {
	return "a race: it " + told(kind, at, bytes) + ", which " + w.named(s, other) +
	    (wrote ? " has written" : " has read") + " with nothing between that orders them";
}

// conflicts reports whether an earlier access isn't ordered before the tag's.
inline bool conflicts(const Worker &w, Tag other, Tag tag) {
	if (launch_of(other) != launch_of(tag) || (atomic_of(other) && atomic_of(tag)))
		return false;
	if (spread_of(other) == Spread::grid || block_of(other) != block_of(tag))
		return true;
	if (thread_of(other) == thread_of(tag) && spread_of(other) == Spread::thread)
		return false;
	return !w.ordered(other);
}

// read_by is what is kept of a byte's readers when there's one more.
inline Tag read_by(const Worker &w, Tag others, Tag tag) {
	if (launch_of(others) != launch_of(tag))
		return tag;
	if (spread_of(others) == Spread::grid || block_of(others) != block_of(tag))
		return tag | (Tag)Spread::grid;
	if (w.ordered(others) || (thread_of(others) == thread_of(tag) && spread_of(others) == Spread::thread))
		return tag;
	Spread spread = spread_of(others) <= Spread::warp && w.same_warp(others) ? Spread::warp : Spread::block;
	// One that says it all stays, so that many threads which read the same don't write here.
	return spread == spread_of(others) && atomic_of(others) == atomic_of(tag) ? others : tag | (Tag)spread;
}

// Form is what compilers know of the bytes: that they are one aligned number, one of a packed struct, or several.
enum class Form { aligned, unaligned, several };

// check looks at each byte of an access.
__attribute__((noinline)) void check(
    Worker &w, uintptr_t at, size_t bytes, Kind kind, bool atomic, uintptr_t site, Form form) {
	Shadow *s = w.shadow_of(at, bytes);
	if (s == nullptr) {
		if (kind == Kind::read && (w.module().has(at) || w.is_argument(at)))
			return; // a constant
		outside(w, at, bytes, kind, site);
	}
	if (form == Form::aligned && (at & (bytes - 1)) != 0)
		w.fail(Fault::misaligned_address, site, told(kind, at, bytes) + ", which isn't aligned");
	size_t first = at - s->range.base;
	if (kind != Kind::write) {
		size_t without = 0;
		for (size_t k = 0; k < bytes; k++)
			without += !s->valid(at + k);
		// Several numbers may have gaps, as may the word that an atomic operation changes an element of.
		if (form == Form::several || atomic ? without == bytes : without > 0)
			w.fail(Fault::launch_failed, site, told(kind, at, bytes) + ", which have no value");
	}
	Tag tag = w.tag(s, atomic);
	Tag *writers = s->writers + first, *readers = s->readers + first;
	for (size_t k = 0; k < bytes; k++) {
		Tag wrote = __atomic_load_n(&writers[k], __ATOMIC_RELAXED);
		Tag read = __atomic_load_n(&readers[k], __ATOMIC_RELAXED);
		bool to_writer = wrote != tag && conflicts(w, wrote, tag);
		bool to_reader = !to_writer && kind != Kind::read && read != tag && conflicts(w, read, tag);
		if (to_writer || to_reader) {
			std::string what = race(w, s, to_writer ? wrote : read, to_writer, at, bytes, kind);
			if (kind != Kind::write || bytes > Doubt::most)
				w.fail(Fault::launch_failed, site, what);
			w.doubt(at, bytes, site, what);
			break;
		}
		if (kind == Kind::read) {
			if (read != tag)
				__atomic_store_n(&readers[k], read_by(w, read, tag), __ATOMIC_RELAXED);
		} else {
			__atomic_store_n(&writers[k], tag, __ATOMIC_RELAXED);
		}
	}
	if (kind == Kind::write)
		s->give_value(first, bytes);
}

// alike reports whether all of n tags are the same.
template <size_t n> inline bool alike(const Tag *tags) {
	Tag different = 0;
	for (size_t k = 1; k < n; k++)
		different |= __atomic_load_n(&tags[k], __ATOMIC_RELAXED) ^ tags[0];
	return different == 0;
}

template <size_t n> inline void put(Tag *tags, Tag tag) {
	for (size_t k = 0; k < n; k++)
		__atomic_store_n(&tags[k], tag, __ATOMIC_RELAXED);
}

// fine is check for a number whose bytes are alike, and finds nothing. It returns false if that isn't so.
template <size_t n> inline bool fine(Worker &w, uintptr_t at, Kind kind, bool atomic) {
	Shadow *s = w.shadow_of(at, n);
	if (s == nullptr || ((at | s->range.base) & (n - 1)) != 0)
		return false;
	size_t first = at - s->range.base;
	constexpr unsigned all = n >= 8 ? 0xff : (1u << n) - 1;
	for (size_t k = first / 8; k < (first + n + 7) / 8; k++)
		if ((__atomic_load_n(&s->bits[k], __ATOMIC_RELAXED) >> (n >= 8 ? 0 : first % 8) & all) != all) {
			if (kind != Kind::write)
				return false;
			s->set_valid(at, n, true);
			break;
		}
	Tag tag = w.tag(s, atomic), *writers = s->writers + first, *readers = s->readers + first;
	Tag wrote = __atomic_load_n(writers, __ATOMIC_RELAXED), read = __atomic_load_n(readers, __ATOMIC_RELAXED);
	if (!alike<n>(writers) || !alike<n>(readers) || (wrote != tag && conflicts(w, wrote, tag)))
		return false;
	if (kind == Kind::read) {
		Tag now = read == tag ? tag : read_by(w, read, tag);
		if (now != read)
			put<n>(readers, now);
		return true;
	}
	if (read != tag && conflicts(w, read, tag))
		return false;
	if (wrote != tag)
		put<n>(writers, tag);
	return true;
}

// begins is the worker, if an access has to be checked.
inline Worker *begins(uintptr_t at) {
	Worker *w = Worker::running();
	if (w == nullptr)
		return nullptr;
	w->settle_doubt();
	return w->on_stack(at) ? nullptr : w;
}

template <size_t n>
inline void access(uintptr_t at, Kind kind, bool atomic, uintptr_t site, Form form = Form::aligned) {
	Worker *w = begins(at);
	if (w != nullptr && !fine<n>(*w, at, kind, atomic))
		check(*w, at, n, kind, atomic, site, form);
}

void accesses(uintptr_t at, size_t bytes, Kind kind, uintptr_t site) {
	Worker *w = begins(at);
	if (w != nullptr && bytes > 0)
		check(*w, at, bytes, kind, false, site, Form::several);
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

#define ACCESSES(n) \
	void __tsan_read##n(void *p) { access<n>((uintptr_t)p, Kind::read, false, SITE); } \
	void __tsan_write##n(void *p) { access<n>((uintptr_t)p, Kind::write, false, SITE); } \
	void __tsan_unaligned_read##n(void *p) { access<n>((uintptr_t)p, Kind::read, false, SITE, Form::unaligned); } \
	void __tsan_unaligned_write##n(void *p) { access<n>((uintptr_t)p, Kind::write, false, SITE, Form::unaligned); } \
	void __tsan_volatile_read##n(void *p) { access<n>((uintptr_t)p, Kind::read, true, SITE); } \
	void __tsan_volatile_write##n(void *p) { access<n>((uintptr_t)p, Kind::write, true, SITE); } \
	void __tsan_unaligned_volatile_read##n(void *p) { \
		access<n>((uintptr_t)p, Kind::read, true, SITE, Form::unaligned); \
	} \
	void __tsan_unaligned_volatile_write##n(void *p) { \
		access<n>((uintptr_t)p, Kind::write, true, SITE, Form::unaligned); \
	} \
	void __tsan_read_write##n(void *p) { access<n>((uintptr_t)p, Kind::change, false, SITE); } \
	void __tsan_unaligned_read_write##n(void *p) { \
		access<n>((uintptr_t)p, Kind::change, false, SITE, Form::unaligned); \
	}
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void *p, unsigned long n) { accesses((uintptr_t)p, n, Kind::read, SITE); }
void __tsan_write_range(void *p, unsigned long n) { accesses((uintptr_t)p, n, Kind::write, SITE); }

// Compilers make copies of structs calls, which modules are linked to make these.
void *__wrap_memcpy(void *to, const void *from, size_t n) {
	accesses((uintptr_t)from, n, Kind::read, SITE);
	accesses((uintptr_t)to, n, Kind::write, SITE);
	return memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
	accesses((uintptr_t)from, n, Kind::read, SITE);
	accesses((uintptr_t)to, n, Kind::write, SITE);
	return memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
	accesses((uintptr_t)to, n, Kind::write, SITE);
	return memset(to, value, n);
}
void *__tsan_memcpy(void *to, const void *from, size_t n) { return __wrap_memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return __wrap_memmove(to, from, n); }
void *__tsan_memset(void *to, int value, size_t n) { return __wrap_memset(to, value, n); }

#define CHANGE(bits, type, name, operation) \
	type __tsan_atomic##bits##_##name(volatile type *p, type v, int) { \
		access<bits / 8>((uintptr_t)p, Kind::change, true, SITE); \
		return operation(p, v, __ATOMIC_SEQ_CST); \
	}
#define ATOMICS(bits, type) \
	type __tsan_atomic##bits##_load(const volatile type *p, int) { \
		access<bits / 8>((uintptr_t)p, Kind::read, true, SITE); \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST); \
	} \
	void __tsan_atomic##bits##_store(volatile type *p, type v, int) { \
		access<bits / 8>((uintptr_t)p, Kind::write, true, SITE); \
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST); \
	} \
	CHANGE(bits, type, exchange, __atomic_exchange_n) \
	CHANGE(bits, type, fetch_add, __atomic_fetch_add) \
	CHANGE(bits, type, fetch_sub, __atomic_fetch_sub) \
	CHANGE(bits, type, fetch_and, __atomic_fetch_and) \
	CHANGE(bits, type, fetch_or, __atomic_fetch_or) \
	CHANGE(bits, type, fetch_xor, __atomic_fetch_xor) \
	CHANGE(bits, type, fetch_nand, __atomic_fetch_nand) \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *p, type *old, type v, int, int) { \
		access<bits / 8>((uintptr_t)p, Kind::change, true, SITE); \
		return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	} \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile type *p, type *old, type v, int, int) { \
		access<bits / 8>((uintptr_t)p, Kind::change, true, SITE); \
		return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	} \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *p, type old, type v, int, int) { \
		access<bits / 8>((uintptr_t)p, Kind::change, true, SITE); \
		__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		return old; \
	}
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

// Source is a place in the source, as UndefinedBehaviorSanitizer's calls have it.
struct Source {
	const char *file;
	uint32_t line, column;
};
struct Type {
	uint16_t kind, info;
	char name[1];
};
struct Overflow {
	Source at;
	const Type *type;
};
struct Mismatch {
	Source at;
	const Type *type;
	uint8_t align_log_2, kind;
};

static std::string line_of(Worker &w, const Source &at) { return w.module().text_of(at.file, at.line); }

// Indexes are of 32 bits.
static void overflowed(const Overflow *o, const char *operation) {
	Worker *w = Worker::running();
	if (w == nullptr || 1u << (o->type->info >> 1) != 32)
		return;
	w->fail_in(Fault::launch_failed, line_of(*w, o->at),
	    std::string(operation) + " of " + o->type->name + " at column " + std::to_string(o->at.column) + " overflows");
}

void __ubsan_handle_add_overflow(Overflow *o, void *, void *) { overflowed(o, "a sum"); }
void __ubsan_handle_sub_overflow(Overflow *o, void *, void *) { overflowed(o, "a difference"); }
void __ubsan_handle_mul_overflow(Overflow *o, void *, void *) { overflowed(o, "a product"); }
void __ubsan_handle_negate_overflow(Overflow *o, void *) { overflowed(o, "a negation"); }
void __ubsan_handle_divrem_overflow(Overflow *o, void *, void *) { overflowed(o, "a division"); }

void __ubsan_handle_type_mismatch_v1(Mismatch *m, uintptr_t at) {
	Worker *w = Worker::running();
	uintptr_t align = (uintptr_t)1 << m->align_log_2;
	if (w != nullptr && (at & (align - 1)) != 0)
		w->fail_in(Fault::misaligned_address, line_of(*w, m->at),
		    std::string(m->type->name) + " at " + hex(at) + ", which isn't a multiple of " + std::to_string(align));
}
}
#pragma GCC visibility pop
