/*
 * thread.h - starts a thread that gets no signals: a program's main thread handles them, and for a
 * library the threads of its user.
 */
#ifndef KVW_THREAD_H
#define KVW_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread in which all signals are blocked. Returns 0, or an error number. */
static inline int kvw_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

#endif
