# Cells of Ruby in the top-level binding; the last value is shown.
# Runs inside a sandbox, in the interpreter that keeps the state.
module SandboxerCells
  CODE = IO.for_fd(ENV.delete("SANDBOXER_CODE").to_i, "rb")
  CONTROL = IO.for_fd(ENV.delete("SANDBOXER_CONTROL").to_i, "wb")
  ENV.delete("SANDBOXER_FLAG")
  CODE.close_on_exec = CONTROL.close_on_exec = true
  CONTROL.sync = true

  def self.answer(word, text)
    text = text.to_s.dup.force_encoding("BINARY")
    CONTROL.write("#{word} #{text.bytesize}\n".b + text)
  end

  def self.complain(error)
    answer("ename", error.class.name)
    answer("evalue", error.message)
    kept = (error.backtrace || []).reject { |line| line.start_with?(__FILE__) }
    answer("trace", (["#{error.class}: #{error.message}"] + kept.map { |line| "  from " + line }).join("\n") + "\n")
  end

  def self.run(n, code)
    @running = true
    value = TOPLEVEL_BINDING.eval(code, "<cell #{n}>", 1)
    @running = false
    unless value.nil?
      TOPLEVEL_BINDING.local_variable_set(:_, value)
      answer("value", value.inspect)
    end
    0
  rescue SystemExit => error
    return 0 if error.success?
    complain(error)
    1
  rescue Exception => error
    complain(error)
    1
  ensure
    @running = false
  end

  def self.loop_over
    $stdout.sync = $stderr.sync = true
    Signal.trap("INT") { raise Interrupt, "interrupted" if @running }
    CONTROL.write("end 0 0\n")
    while (head = CODE.gets)
      n, size = head.split.map(&:to_i)
      code = CODE.read(size).force_encoding("UTF-8")
      status = run(n, code)
      CONTROL.write("end #{status} #{n}\n")
    end
  end
end
SandboxerCells.loop_over
