/*
 * region.c - reserves address space and makes it usable step by step.
 *
 * Reserved pages have no access rights, so that the kernel does not count them, even on a machine
 * that refuses to promise more memory than it has. Growing makes the next step accessible: small
 * steps at first, then whole huge pages, because random walks of a large region pay for each page's
 * translation.
 */
#include "index/region.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE  ((size_t)2 * 1024 * 1024)
#define SMALL_STEP ((size_t)64 * 1024)

static size_t round_up(size_t bytes, size_t step)
{
	return (bytes + step - 1) / step * step;
}

enum kvt_status kvt_region_init(struct kvt_region *r, size_t bytes)
{
	size_t reserved, extra;
	void *mapped;

	if (bytes > SIZE_MAX / 4)
		return KVT_ENOMEM;
	reserved = round_up(bytes > 0 ? bytes : 1, bytes >= HUGE_PAGE ? HUGE_PAGE : SMALL_STEP);
	extra = reserved >= HUGE_PAGE ? HUGE_PAGE : 0;
	mapped = mmap(NULL, reserved + extra, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return KVT_ENOMEM;
	*r = (struct kvt_region){
		.base = mapped,
		.reserved = reserved,
		.mapped = mapped,
		.mapped_bytes = reserved + extra,
	};
	if (extra > 0) {
		r->base = (void *)round_up((size_t)mapped, HUGE_PAGE);
		(void)madvise(r->base, reserved, MADV_HUGEPAGE); /* a wish */
	}
	return KVT_OK;
}

enum kvt_status kvt_region_grow(struct kvt_region *r, size_t bytes)
{
	size_t usable = round_up(bytes, bytes > HUGE_PAGE / 2 ? HUGE_PAGE : SMALL_STEP);

	if (bytes <= r->usable)
		return KVT_OK;
	if (bytes > r->reserved)
		return KVT_ENOMEM;
	if (usable > r->reserved)
		usable = r->reserved;
	if (mprotect((char *)r->base + r->usable, usable - r->usable, PROT_READ | PROT_WRITE) != 0)
		return KVT_ENOMEM;
	r->usable = usable;
	return KVT_OK;
}

void kvt_region_clear(struct kvt_region *r)
{
	if (r->usable > 0)
		(void)madvise(r->base, r->usable, MADV_DONTNEED);
}

void kvt_region_finish(struct kvt_region *r)
{
	if (r->mapped != NULL)
		(void)munmap(r->mapped, r->mapped_bytes);
	*r = (struct kvt_region){0};
}
