/*
 * log.h - messages for the operator, one line each on standard error.
 *
 * A line has time, level, the part of the program, a text, then key=value fields. Prompts, keys and
 * tokens of users are never logged. A character that could end a line or begin a terminal's command
 * becomes '?', and a quotation mark of an argument an apostrophe: arguments may come from outside.
 * Each line is one write(2); a line that cannot be written, or not without waiting, is dropped and
 * counted. Thread-safe.
 */
#ifndef KVW_LOG_H
#define KVW_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvw_log_level { KVW_LOG_DEBUG, KVW_LOG_INFO, KVW_LOG_WARN, KVW_LOG_ERROR };

void kvw_log_set_level(enum kvw_log_level level);
bool kvw_log_enabled(enum kvw_log_level level);
void kvw_log_write(enum kvw_log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
uint64_t kvw_log_dropped(void);

/* Formats a line for another log: cut to `room`, and with the same characters replaced. */
void kvw_log_line(char *out, size_t room, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

#define kvw_log(level, room, ...)                                                                  \
	do {                                                                                       \
		if (kvw_log_enabled(level))                                                        \
			kvw_log_write(level, room, __VA_ARGS__);                                   \
	} while (0)
#define kvw_debug(room, ...) kvw_log(KVW_LOG_DEBUG, room, __VA_ARGS__)
#define kvw_info(room, ...)  kvw_log(KVW_LOG_INFO, room, __VA_ARGS__)
#define kvw_warn(room, ...)  kvw_log(KVW_LOG_WARN, room, __VA_ARGS__)
#define kvw_error(room, ...) kvw_log(KVW_LOG_ERROR, room, __VA_ARGS__)

#endif
