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
inline Tag read_by(const Worker &w, Tag others, Tag tag, int warp) {
	if (launch_of(others) != launch_of(tag))
		return tag;
	if (spread_of(others) == Spread::grid || block_of(others) != block_of(tag))
		return tag | (Tag)Spread::grid;
	if (w.ordered(others) || (thread_of(others) == thread_of(tag) && spread_of(others) == Spread::thread))
		return tag;
	bool near = spread_of(others) <= Spread::warp && thread_of(others) / warp == thread_of(tag) / warp;
	return tag | (Tag)(near ? Spread::warp : Spread::block);
}

// Form is what compilers know of the bytes: that they are one aligned number, one of a packed struct, or several.
enum class Form { aligned, unaligned, several };

void access(uintptr_t at, size_t bytes, Kind kind, bool atomic, uintptr_t site, Form form = Form::aligned) {
	Worker *running = Worker::running();
	if (running == nullptr)
		return;
	Worker &w = *running;
	w.settle_doubt();
	if (w.on_stack(at))
		return;
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
		if (form == Form::several ? without == bytes : without > 0)
			w.fail(Fault::launch_failed, site, told(kind, at, bytes) + ", which have no value");
	}
	Tag tag = w.tag(s, atomic);
	Tag *writers = s->writers + first, *readers = s->readers + first;
	int warp = w.lanes_of_warp();
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
				__atomic_store_n(&readers[k], read_by(w, read, tag, warp), __ATOMIC_RELAXED);
		} else {
			__atomic_store_n(&writers[k], tag, __ATOMIC_RELAXED);
		}
	}
	if (kind == Kind::write)
		s->give_value(first, bytes);
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
	void __tsan_read##n(void *p) { access((uintptr_t)p, n, Kind::read, false, SITE); } \
	void __tsan_write##n(void *p) { access((uintptr_t)p, n, Kind::write, false, SITE); } \
	void __tsan_unaligned_read##n(void *p) { access((uintptr_t)p, n, Kind::read, false, SITE, Form::unaligned); } \
	void __tsan_unaligned_write##n(void *p) { access((uintptr_t)p, n, Kind::write, false, SITE, Form::unaligned); } \
	void __tsan_volatile_read##n(void *p) { access((uintptr_t)p, n, Kind::read, true, SITE); } \
	void __tsan_volatile_write##n(void *p) { access((uintptr_t)p, n, Kind::write, true, SITE); } \
	void __tsan_unaligned_volatile_read##n(void *p) { \
		access((uintptr_t)p, n, Kind::read, true, SITE, Form::unaligned); \
	} \
	void __tsan_unaligned_volatile_write##n(void *p) { \
		access((uintptr_t)p, n, Kind::write, true, SITE, Form::unaligned); \
	} \
	void __tsan_read_write##n(void *p) { access((uintptr_t)p, n, Kind::change, false, SITE); } \
	void __tsan_unaligned_read_write##n(void *p) { \
		access((uintptr_t)p, n, Kind::change, false, SITE, Form::unaligned); \
	}
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void *p, unsigned long n) {
	if (n > 0)
		access((uintptr_t)p, n, Kind::read, false, SITE, Form::several);
}
void __tsan_write_range(void *p, unsigned long n) {
	if (n > 0)
		access((uintptr_t)p, n, Kind::write, false, SITE, Form::several);
}

// Compilers make copies of structs calls, which modules are linked to make these.
void *__wrap_memcpy(void *to, const void *from, size_t n) {
	if (n > 0) {
		access((uintptr_t)from, n, Kind::read, false, SITE, Form::several);
		access((uintptr_t)to, n, Kind::write, false, SITE, Form::several);
	}
	return memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
	if (n > 0) {
		access((uintptr_t)from, n, Kind::read, false, SITE, Form::several);
		access((uintptr_t)to, n, Kind::write, false, SITE, Form::several);
	}
	return memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
	if (n > 0)
		access((uintptr_t)to, n, Kind::write, false, SITE, Form::several);
	return memset(to, value, n);
}
void *__tsan_memcpy(void *to, const void *from, size_t n) { return __wrap_memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return __wrap_memmove(to, from, n); }
void *__tsan_memset(void *to, int value, size_t n) { return __wrap_memset(to, value, n); }

#define CHANGE(bits, type, name, operation) \
	type __tsan_atomic##bits##_##name(volatile type *p, type v, int) { \
		access((uintptr_t)p, bits / 8, Kind::change, true, SITE); \
		return operation(p, v, __ATOMIC_SEQ_CST); \
	}
#define ATOMICS(bits, type) \
	type __tsan_atomic##bits##_load(const volatile type *p, int) { \
		access((uintptr_t)p, bits / 8, Kind::read, true, SITE); \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST); \
	} \
	void __tsan_atomic##bits##_store(volatile type *p, type v, int) { \
		access((uintptr_t)p, bits / 8, Kind::write, true, SITE); \
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
		access((uintptr_t)p, bits / 8, Kind::change, true, SITE); \
		return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	} \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile type *p, type *old, type v, int, int) { \
		access((uintptr_t)p, bits / 8, Kind::change, true, SITE); \
		return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	} \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *p, type old, type v, int, int) { \
		access((uintptr_t)p, bits / 8, Kind::change, true, SITE); \
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
