"""What drives: stores, queue, controller, executor, election. It knows no HTTP and no concrete kind."""
