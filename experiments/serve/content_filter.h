// A process of the user's own that judges texts: it reads a line of JSON for each, {"kind": "prompt" or "output",
// "text": TEXT}, and answers with a line, {"allow": true or false}. What it does not answer in time, or not so, is not
// allowed: it is then ended and started again. This module must not know requests or connections.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <sys/types.h>

namespace foretoken::serve {

enum class Verdict { allowed, refused, none };  // none: the filter does not work

class ContentFilter {
 public:
  // `command`: of a shell, started here and asked about an empty text, for which it has a minute. An Error where it
  // does not answer. `seconds`: for each text.
  ContentFilter(std::string command, double seconds);
  ~ContentFilter();
  ContentFilter(const ContentFilter&) = delete;

  // `heard` gets the verdict on the filter's thread, or at once where it is being started again. Texts are judged one
  // after another. From any thread.
  void ask(const char* kind, const std::string& text, std::function<void(Verdict)> heard);
  // The same, waiting for it.
  Verdict judge(const char* kind, const std::string& text);
  // Ends the process. What waits, and what is asked from now on, has no verdict; once this has returned nobody hears of
  // what was asked before.
  void stop();

 private:
  struct Question {
    std::string line;
    std::function<void(Verdict)> heard;
  };
  void run();
  bool start();
  void end();
  Verdict answer(const std::string& line, double seconds);

  const std::string command_;
  const double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;
  bool starting_ = false;
  std::atomic<bool> done_ = false;
  // Of the filter's thread, once it runs:
  int socket_ = -1;
  pid_t process_ = -1;
  std::thread thread_;
};

}  // namespace foretoken::serve
