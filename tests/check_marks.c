/*
 * check_marks.c - the location of the last assertion that held, kept in memory.
 *
 * Check writes a message to a file at each assertion that holds, so that it can say where a test
 * was when it crashed: one system call per assertion, which is most of the time of a test that
 * asserts a million times. Only the last location before any other message counts, so the linker
 * sends Check's messages through here (`--wrap`, tests/meson.build): a location is remembered, and
 * written when another message follows it, or by the parent once the test's process is gone.
 *
 * The memory is shared with the test's process and with what that forks, and one atomic holds both
 * file and line: whatever kills the process, at whatever moment, leaves a true pair. The file is
 * kept as its distance from a byte of this program, since __FILE__ lies in the same image.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include <check.h>

/* Declared in Check's check_msg.h, which is not installed. */
void __real_send_loc_info(const char *file, int line);
void __real_send_failure_info(const char *message);
void __real_send_ctx_info(int context);
void *__real_receive_test_result(int failed);
void __wrap_send_loc_info(const char *file, int line);
void __wrap_send_failure_info(const char *message);
void __wrap_send_ctx_info(int context);
void *__wrap_receive_test_result(int failed);

static const char anchor;

/* In the upper 32 bits the distance of the file's name from `anchor`, in the lower ones the
 * line; 0: nothing to write. NULL: no memory. */
static _Atomic uint64_t *last;

__attribute__((constructor)) static void share(void)
{
	void *page = mmap(NULL, sizeof(*last), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page != MAP_FAILED)
		last = page;
}

static void write_last(void)
{
	uint64_t mark = last != NULL ? atomic_exchange_explicit(last, 0, memory_order_relaxed) : 0;

	if (mark != 0)
		__real_send_loc_info((const char *)((intptr_t)&anchor + (int32_t)(mark >> 32)), (int)(uint32_t)mark);
}

void __wrap_send_loc_info(const char *file, int line)
{
	intptr_t distance = (intptr_t)file - (intptr_t)&anchor;

	if (last == NULL || distance != (int32_t)distance || line <= 0) {
		write_last();
		__real_send_loc_info(file, line);
		return;
	}
	atomic_store_explicit(last, (uint64_t)(uint32_t)distance << 32 | (uint32_t)line, memory_order_relaxed);
}

void __wrap_send_failure_info(const char *message)
{
	write_last();
	__real_send_failure_info(message);
}

void __wrap_send_ctx_info(int context)
{
	write_last();
	__real_send_ctx_info(context);
}

/* Runs in the parent, if the test ran in a process of its own. */
void *__wrap_receive_test_result(int failed)
{
	write_last();
	return __real_receive_test_result(failed);
}
