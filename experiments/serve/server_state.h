// What the connections of a server share. All of it belongs to the thread of the server, unless it says otherwise.
#pragma once
#include <functional>
#include <random>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "experiments/serve/server.h"

namespace foretoken::serve {

class Connection;

struct ServerState {
  ServedModel& model;
  Keys& keys;
  Metrics& metrics;
  AccessLog& log;
  ServerOptions options;
  std::string name;  // of the model
  std::set<Connection*> connections{};
  bool draining = false;
  std::function<void()> closed{};  // a connection was
  std::mt19937_64 draw{std::random_device{}()};
  boost::asio::io_context io{1};  // ends before what connections use when they end with it
  // Read bodies and encode prompts, which may take as long as a step; long ones are not before short ones.
  boost::asio::thread_pool workers{1}, workers_of_long{1};

  // 24 hexadecimal digits.
  std::string new_id();
};

}  // namespace foretoken::serve
