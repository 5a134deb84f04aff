/*
 * log.c - formats a line and writes it to standard error with one write(2).
 *
 * One write for each line keeps lines of several threads whole (POSIX: pipes up to PIPE_BUF, files
 * with O_APPEND). Standard error stays blocking, since other processes may share it; if its reader
 * does not keep up, a line that would block is dropped, so that no event loop ever blocks. A lock
 * makes check and write one step for all threads. Lines on event loops are rare (state changes, not
 * requests, which go to the access log's ring), and callers limit the rate of lines that could
 * repeat.
 */
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static _Atomic int least_level = KVW_LOG_INFO;
static _Atomic uint64_t dropped;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

void kvw_log_set_level(enum kvw_log_level level)
{
	atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
}

bool kvw_log_enabled(enum kvw_log_level level)
{
	return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

uint64_t kvw_log_dropped(void)
{
	return atomic_load_explicit(&dropped, memory_order_relaxed);
}

/* A pipe or socket that poll reports as writable has room for a page, so it takes a whole line. */
static bool write_at_once(const char *line, size_t len)
{
	struct pollfd target = {.fd = STDERR_FILENO, .events = POLLOUT};
	bool written;

	pthread_mutex_lock(&writing);
	written = poll(&target, 1, 0) == 1 && write(STDERR_FILENO, line, len) >= 0;
	pthread_mutex_unlock(&writing);
	return written;
}

/* Replaces control characters, which could end a line or act on the operator's terminal. Names,
 * reasons and subjects come from peers, so they may contain such characters: also those of C1,
 * U+0080 to U+009F, in UTF-8. */
static void mask(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < ' ' || c == 0x7f) {
			text[i] = '?';
		} else if (c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] >= 0x80 &&
			   (unsigned char)text[i + 1] <= 0x9f) {
			text[i] = text[i + 1] = '?';
		}
	}
}

/* Returns the length of a text cut at len, without a character at its end that the cut has
 * split. */
static size_t whole(const char *text, size_t len)
{
	size_t begin = len;
	unsigned char first;

	while (begin > 0 && len - begin < 3 && ((unsigned char)text[begin - 1] & 0xc0) == 0x80)
		begin--;
	first = begin > 0 ? (unsigned char)text[begin - 1] : 0;
	if (first < 0xc0)
		return len;
	return len - begin + 1 < (first < 0xe0 ? 2u : first < 0xf0 ? 3u : 4u) ? begin - 1 : len;
}

static size_t count_quotes(const char *text)
{
	size_t count = 0;

	for (; *text != '\0'; text++)
		count += *text == '"';
	return count;
}

/* Formats the text a second time, with quotation marks in arguments as apostrophes: they would end
 * a field, and could forge others. During that, the format's own quotation marks are replaced by a
 * control character that the text does not contain. */
static void format_again(char *out, size_t room, const char *format, va_list args)
{
	char marked[512], mark = 1;
	size_t len = strlen(format);

	while (mark < ' ' && strchr(out, mark) != NULL)
		mark++;
	if (mark < ' ' && len < sizeof(marked)) {
		for (size_t i = 0; i <= len; i++)
			marked[i] = (char)(format[i] == '"' ? mark : format[i]);
		(void)vsnprintf(out, room, marked, args);
	}
	for (; *out != '\0'; out++)
		*out = (char)(*out == '"' ? '\'' : *out == mark && mark < ' ' ? '"' : *out);
}

/* Formats a text of at most room - 1 bytes, cut after a whole character, in which arguments cannot
 * make lines or fields. Returns its length. */
static size_t format_clean(char *out, size_t room, const char *format, va_list args)
{
	va_list again;
	size_t len = 0;
	int n;

	va_copy(again, args);
	n = vsnprintf(out, room, format, args);
	if (n > 0) {
		len = (size_t)n < room ? (size_t)n : whole(out, room - 1);
		if ((size_t)n >= room || count_quotes(out) != count_quotes(format))
			format_again(out, room, format, again);
		mask(out, len);
	}
	va_end(again);
	out[len] = '\0';
	return len;
}

void kvw_log_line(char *out, size_t room, const char *format, va_list args)
{
	(void)format_clean(out, room, format, args);
}

void kvw_log_write(enum kvw_log_level level, const char *room, const char *format, ...)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	char line[1024];
	int64_t now_ns = kvw_clock_wall_ns();
	time_t seconds = now_ns / KVW_NS_PER_S;
	struct tm utc;
	va_list args;
	size_t len;

	gmtime_r(&seconds, &utc);
	len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
	len += (size_t)snprintf(line + len, sizeof(line) - len,
		".%03dZ %-5s %s: ", (int)(now_ns / KVW_NS_PER_MS % 1000), names[level], room);
	va_start(args, format);
	len += format_clean(line + len, sizeof(line) - len - 1, format, args);
	va_end(args);
	line[len++] = '\n';
	if (!write_at_once(line, len))
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
}
